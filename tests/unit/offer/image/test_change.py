"""The properties that follow from a spec."""

from __future__ import annotations

import pytest

from gpustack.cloud.image import Image
from gpustack.offer.image.change import changes
from gpustack.offer.image.model import FlavorNeeds, Pair


def flavor(*, windows: bool = False, hidden_from: tuple[str, ...] = (), **specs: str) -> FlavorNeeds:
    return FlavorNeeds(
        name="f",
        models=("gtx",),
        vendors=frozenset(("10de",)),
        disk=40,
        windows=windows,
        hidden_from=hidden_from,
        extra_specs=specs,
    )


WINDOWS = flavor(windows=True, hidden_from=("gtx",))
HIDING = flavor(windows=True, hidden_from=("gtx",), **{"hw:hide_hypervisor_id": "true"})


@pytest.mark.parametrize(
    ("flavors", "properties", "firmware", "expected"),
    [
        ((flavor(),), {}, None, ["+ hw_machine_type = q35"]),
        ((flavor(),), {"hw_machine_type": "pc"}, None, []),
        ((flavor(),), {"architecture": "aarch64"}, None, []),
        ((), {}, None, []),
        ((flavor(),), {"hw_machine_type": "q35"}, "uefi", ["+ hw_firmware_type = uefi"]),
        (
            (flavor(),),
            {"hw_machine_type": "q35", "hw_firmware_type": "bios"},
            "uefi",
            ["~ hw_firmware_type = uefi (was bios)"],
        ),
        ((WINDOWS,), {"hw_machine_type": "q35"}, None, ["+ os_type = windows", "+ img_hide_hypervisor_id = true"]),
        ((WINDOWS, HIDING), {"hw_machine_type": "q35", "os_type": "windows", "gpustack_driver": "580.1"}, None, []),
        ((HIDING,), {"hw_machine_type": "q35", "os_type": "Windows"}, None, ["~ os_type = windows (was Windows)"]),
        ((flavor(),), {"hw_machine_type": "q35", "os_type": "Windows"}, None, ["~ os_type = windows (was Windows)"]),
        # The name alone is a suspicion.
        ((flavor(),), {"hw_machine_type": "q35", "os_distro": "windows"}, None, []),
    ],
)
def test_only_certain_values_are_set(
    flavors: tuple[FlavorNeeds, ...], properties: dict[str, str], firmware: str | None, expected: list[str]
) -> None:
    image = Image(id="1", name="i", properties=properties)
    operations = changes([Pair(image=image, flavors=flavors)], firmware)
    assert [line for operation in operations for line in operation.details()] == expected


def test_the_reverse_removes_new_properties() -> None:
    image = Image(id="1", name="i", properties={"os_type": "Windows"})
    (operation,) = changes([Pair(image=image, flavors=(HIDING,))])
    assert operation.reverse().details() == ["- hw_machine_type (was q35)", "~ os_type = Windows (was windows)"]
