"""The operating system in an image: the limits of drivers, Windows, signed modules and kernels."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.base.findings import Severity
from gpustack.cloud.image import Image
from gpustack.offer.image.guest import guest_problems
from gpustack.offer.image.model import FlavorNeeds


def found(properties: dict[str, str], name: str = "debian", vendor: str = "10de", **needs: Any) -> list[str]:
    """Each problem with its severity and values."""
    known = {"name": "f", "models": ("m",), "disk": 1, "vendors": frozenset({vendor}), **needs}
    shown = []
    for problem in guest_problems(Image(id="1", name=name, properties=properties), FlavorNeeds(**known)):
        severity = f" {problem.severity.value}" if problem.severity else ""
        shown.append(f"{problem.code.value}{severity}: {', '.join(problem.values.values())}")
    return shown


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("470.256.02", []),
        ("580.1", []),
        ("469", ["GPU908: 469, new, 470"]),
        ("581.2", ["GPU850: 581.2, old, 580"]),
        (" R581.2", ["GPU850:  R581.2, old, 580"]),
        ("none", []),
        ("", []),
    ],
)
def test_a_declared_driver_is_of_a_branch_that_knows_the_cards(driver: str, expected: list[str]) -> None:
    branches = {"first_branches": {"new": 470}, "last_branches": {"old": 580}}
    assert found({"gpustack_driver": driver}, **branches) == expected
    assert found({}, **branches) == []


@pytest.mark.parametrize(
    ("driver", "hosts", "expected"),
    [
        ("580.1", ("580.65", "570.1"), "GPU978: m, 580.65 or 570.1, 580.1"),
        ("581", ("580.65", "570.1"), "GPU978 warning: m, 580.65 or 570.1, 581"),
        ("581", (), "GPU978: m, unknown, 581"),
        (None, ("580.65",), "GPU978: m, 580.65, no driver"),
    ],
)
def test_the_licensed_driver_is_not_newer_than_that_of_hosts(
    driver: str | None, hosts: tuple[str, ...], expected: str
) -> None:
    properties = {} if driver is None else {"gpustack_driver": driver}
    assert found(properties, vgpus=("m",), host_drivers=hosts) == [expected]
    assert found(properties, host_drivers=hosts) == []


WINDOWS = {"os_type": "windows"}
HIDDEN: dict[str, Any] = {"windows": True, "hidden_from": ("a", "b")}
VISIBLE = ["GPU821: a and b"]


@pytest.mark.parametrize(
    ("properties", "needs", "expected"),
    [
        (WINDOWS, {"windows": True}, []),
        ({}, {"windows": True}, ["GPU820: os_type is not set"]),
        ({"os_type": "Windows"}, {}, ["GPU820: os_type is Windows"]),
        ({"os_type": "linux"}, {"windows": True}, ["GPU820: os_type is linux"]),
        (WINDOWS, HIDDEN, VISIBLE),
        (WINDOWS, {"hidden_from": ("a", "b")}, VISIBLE),
        ({**WINDOWS, "gpustack_driver": "464.9"}, HIDDEN, VISIBLE),
        ({**WINDOWS, "gpustack_driver": "465.0"}, HIDDEN, []),
        ({**WINDOWS, "img_hide_hypervisor_id": "false"}, HIDDEN, VISIBLE),
        ({**WINDOWS, "img_hide_hypervisor_id": "yes"}, HIDDEN, []),
        (WINDOWS, {**HIDDEN, "extra_specs": {"hw:hide_hypervisor_id": " True "}}, []),
        (WINDOWS, {**HIDDEN, "extra_specs": {"hide_hypervisor_id": "1"}}, []),
        (WINDOWS, {**HIDDEN, "extra_specs": {"hw:hide_hypervisor_id": "false"}}, VISIBLE),
    ],
)
def test_windows_and_a_hypervisor_that_its_driver_sees(
    properties: dict[str, str], needs: dict[str, Any], expected: list[str]
) -> None:
    assert found(properties, **needs) == expected


UNSIGNED = f"GPU824 {Severity.ERROR.value}: are unsigned (gpustack_modules_signed=false)"
DOUBTFUL = "GPU824: may be unsigned"


@pytest.mark.parametrize(
    ("policy", "signed", "vendor", "expected"),
    [
        ("required", None, "10de", [DOUBTFUL]),
        ("optional", None, "10de", [DOUBTFUL]),
        ("disabled", None, "10de", []),
        (None, None, "10de", []),
        ("required", "true", "10de", []),
        ("required", "false", "10de", [UNSIGNED]),
        ("optional", "false", "10de", [UNSIGNED]),
        ("required", "maybe", "10de", [UNSIGNED.replace("false", "maybe")]),
        ("required", "false", "1002", []),  # the kernel has its driver, and is signed
    ],
)
def test_secure_boot_needs_signed_modules(
    policy: str | None, signed: str | None, vendor: str, expected: list[str]
) -> None:
    known = {"os_secure_boot": policy, "gpustack_modules_signed": signed}
    properties = {name: value for name, value in known.items() if value is not None}
    assert found(properties, vendor=vendor) == expected


@pytest.mark.parametrize(
    ("name", "distribution", "expected"),
    [
        ("debian-13-genericcloud-amd64", None, True),
        ("debian-13-generic-cloud-amd64", None, True),
        ("Debian GenericCloud", "Debian", True),
        ("trixie-genericcloud", "debian", True),
        ("trixie-genericcloud", None, False),
        ("debian-genericcloud", "rocky", False),
        ("debian-13-generic-amd64", "debian", False),
    ],
)
def test_debians_cloud_kernel_has_no_graphics_drivers(name: str, distribution: str | None, expected: bool) -> None:
    properties = {} if distribution is None else {"os_distro": distribution}
    for vendors, makers in (({"1002"}, "AMD"), ({"8086"}, "Intel"), ({"1002", "8086", "10de"}, "AMD and Intel")):
        problems = found(properties, name, vendors=frozenset(vendors))
        assert problems == ([f"GPU826: {makers}"] if expected else [])
    assert found(properties, name) == []
