"""The properties that follow from a spec, and their changes. Glance is a stand-in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from gpustack.changes.run import run
from gpustack.cloud.image import Image
from gpustack.cloud.session import Unanswered
from gpustack.offer.image.changes import ImageChange, changes, former
from gpustack.offer.image.model import FlavorNeeds, Pair
from support.change_runs import NoJournal, results


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
        ((flavor(),), {"hw_machine_type": ""}, None, ["~ hw_machine_type = q35 (was )"]),
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


WINDOWS_IMAGE = Image(id="1", name="i", owner="p", properties={"os_type": "Windows"})
(CHANGE,) = changes([Pair(image=WINDOWS_IMAGE, flavors=(HIDING,))])


@dataclass
class Glance:
    """One image, and whether the answer to a change is lost."""

    present: Image | None = WINDOWS_IMAGE
    silent: bool = False

    def image(self, image_id: str) -> Image | None:
        return self.present

    def change(
        self, image_id: str, name: str, before: Mapping[str, str | None], after: Mapping[str, str | None]
    ) -> None:
        assert self.present
        assert "owner" not in after
        merged = {**self.present.properties, **after}
        self.present = replace(self.present, properties={key: value for key, value in merged.items() if value})
        if self.silent:
            raise Unanswered("no answer")


@pytest.mark.parametrize("silent", [False, True])
def test_a_change_and_its_reverse_restore_the_image(silent: bool) -> None:
    glance = Glance(silent=silent)
    assert results([CHANGE], {"image": glance}) == ["done"]
    assert glance.present
    assert glance.present.properties == {"os_type": "windows", "hw_machine_type": "q35"}
    assert results([CHANGE.reverse()], {"image": glance}) == ["done"]
    assert glance.present == WINDOWS_IMAGE
    assert results([CHANGE.reverse()], {"image": glance}) == ["unchanged"]


@pytest.mark.parametrize(
    "present",
    [
        replace(WINDOWS_IMAGE, properties={"os_type": "linux"}),
        replace(WINDOWS_IMAGE, properties={"os_type": "Windows", "hw_machine_type": "pc"}),
        replace(WINDOWS_IMAGE, owner="q"),
        replace(WINDOWS_IMAGE, name="i-2025"),  # the spec means the new image of this name
        None,
    ],
)
def test_an_image_that_changed_since_is_left_alone(present: Image | None) -> None:
    glance = Glance(present)
    assert results([CHANGE], {"image": glance}) == ["skipped"]
    assert glance.present == present


def test_an_undo_reverts_an_image_that_has_another_name() -> None:
    glance = Glance(replace(WINDOWS_IMAGE, name="i-2025", properties={"os_type": "windows", "hw_machine_type": "q35"}))
    assert results([replace(CHANGE.reverse(), recorded=True)], {"image": glance}) == ["done"]


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        ({"visibility": "private"}, {"visibility": "public"}),
        ({"owner": "p"}, {"owner": "q"}),
        ({"os_type": None}, {"os_type": "windows", "hw_machine_type": "q35"}),
    ],
)
def test_an_edited_journal_writes_no_other_property(seen: object, wanted: object) -> None:
    assert ImageChange(why="", id="1", name="i", seen=seen, wanted=wanted).permitted()
    assert not CHANGE.permitted()


@pytest.mark.parametrize("owner", ["p", "", None])
def test_a_line_of_0_1_0_is_the_same_change(owner: str | None) -> None:
    """It has the owner beside the properties, if Glance has one."""
    before, after = ({k: v for k, v in of.items() if k != "owner"} for of in (CHANGE.seen, CHANGE.wanted))
    line = {"why": CHANGE.why, "image": "1", "name": "i", "before": before, "after": after}
    read = former(line if owner is None else {**line, "owner": owner})
    if owner:
        assert replace(read, about=CHANGE.about) == CHANGE
    else:
        assert (read.seen, read.wanted) == (before, after)


def test_the_outcome_has_the_id_of_the_image() -> None:
    (outcome,) = run([CHANGE], {"image": Glance()}, NoJournal())
    assert (outcome.result, outcome.id) == ("done", "1")
