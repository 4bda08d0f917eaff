"""The virtual machine of an image: machine type, firmware, Secure Boot, architecture, conflicts with the flavor."""

from __future__ import annotations

import pytest

from gpustack.cloud.image import Image
from gpustack.offer.image.hardware import hardware_problems, is_x86, secure_boot
from gpustack.offer.image.model import FlavorNeeds

Q35 = {"hw_machine_type": "q35", "hw_firmware_type": "bios"}


def image(properties: dict[str, str]) -> Image:
    return Image(id="1", name="i", properties=properties)


def needs(*architectures: str, specs: dict[str, str] | None = None) -> FlavorNeeds:
    return FlavorNeeds(
        name="f",
        models=("m",),
        disk=1,
        vendors=frozenset(),
        architectures=frozenset(architectures),
        extra_specs=specs or {},
    )


@pytest.mark.parametrize(
    ("properties", "architectures", "expected"),
    [
        ({}, (), True),
        ({"hw_machine_type": "pc"}, (), True),
        ({"hw_machine_type": "virt-8.2"}, (), False),
        ({}, ("x86_64",), True),
        ({}, ("aarch64",), False),
        ({"hw_architecture": "amd64"}, ("aarch64",), True),
        ({"hw_architecture": "i686"}, (), True),
        ({"hw_architecture": "aarch64"}, ("x86_64",), False),
        ({"hw_machine_type": "virt"}, ("x86_64",), True),
    ],
)
def test_machine_types_are_those_of_x86(
    properties: dict[str, str], architectures: tuple[str, ...], expected: bool
) -> None:
    assert is_x86(image(properties), needs(*architectures)) is expected


@pytest.mark.parametrize(
    ("properties", "specs", "expected"),
    [
        ({}, {}, None),
        ({"os_secure_boot": "optional"}, {}, "optional"),
        ({"os_secure_boot": "optional"}, {"os:secure_boot": "required"}, "required"),
        ({}, {"os:secure_boot": "disabled"}, "disabled"),
    ],
)
def test_the_flavor_decides_about_secure_boot(
    properties: dict[str, str], specs: dict[str, str], expected: str | None
) -> None:
    assert secure_boot(image(properties), needs(specs=specs)) == expected


NO_MACHINE, NO_FIRMWARE = "GPU818: hw_machine_type is not set", "GPU819: "
SECURE = {"hw_machine_type": "q35", "hw_firmware_type": "uefi", "os_secure_boot": "required"}
TPM = {"hw:tpm_version": "2.0"}
CONFLICT = "GPU828: hw_tpm_version=1.2, hw:tpm_version=2.0, hw_tpm_version"


@pytest.mark.parametrize(
    ("properties", "of_flavor", "expected"),
    [
        (Q35, needs(), []),
        ({}, needs(), [NO_MACHINE, NO_FIRMWARE]),
        ({**Q35, "hw_machine_type": "pc-q35-8.2"}, needs(), []),
        ({**Q35, "hw_machine_type": "pc"}, needs(), ["GPU818: hw_machine_type is pc"]),
        ({}, needs("aarch64"), []),
        # Architectures
        ({**Q35, "hw_architecture": "x86_64"}, needs("x86_64"), []),
        ({**Q35, "hw_architecture": "x86_64"}, needs(), []),
        ({**Q35, "hw_architecture": "x86_64"}, needs("ppc64le", "aarch64"), ["GPU827: x86_64, aarch64 and ppc64le"]),
        # Secure Boot
        (SECURE, needs(), []),
        ({**SECURE, "hw_firmware_type": "bios"}, needs(), ["GPU825: hw_firmware_type=bios"]),
        (
            {"hw_machine_type": "q35", "os_secure_boot": "required"},
            needs(),
            [NO_FIRMWARE, "GPU825: hw_firmware_type is not set"],
        ),
        (
            {**SECURE, "hw_machine_type": "pc"},
            needs(),
            ["GPU818: hw_machine_type is pc", "GPU825: hw_machine_type=pc"],
        ),
        ({"hw_firmware_type": "uefi", "os_secure_boot": "required"}, needs(), [NO_MACHINE]),
        ({"os_secure_boot": "required", "hw_machine_type": "virt"}, needs(), []),
        ({**SECURE, "hw_firmware_type": "bios", "os_secure_boot": "optional"}, needs(), []),
        # Nova refuses different values
        ({**Q35, "hw_tpm_version": "1.2"}, needs(specs=TPM), [CONFLICT]),
        ({**Q35, "hw_tpm_version": "2.0"}, needs(specs=TPM), []),
        ({**Q35, "hw_tpm_version": "1.2"}, needs(), []),
        (Q35, needs(specs=TPM), []),
    ],
)
def test_problems_of_the_virtual_machine(
    properties: dict[str, str], of_flavor: FlavorNeeds, expected: list[str]
) -> None:
    problems = hardware_problems(image(properties), of_flavor)
    assert [f"{found.code.value}: {', '.join(found.values.values())}" for found in problems] == expected
