"""What can be run is written down whole: versions, pins, interpreters."""

from __future__ import annotations

import re
from dataclasses import asdict

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpustack.base.errors import UsageError
from gpustack_demo.embedded.hosts import devices_of_snapshot, gpus
from gpustack_demo.embedded.install import main
from gpustack_demo.embedded.releases import packages, release, releases


def pins(name: str, python: str) -> dict[str, str]:
    """The exact versions that are installed with a Python; some have a marker."""
    variables = {"python_version": python, "python_full_version": f"{python}.9", "sys_platform": "linux"}
    lines = release(name).pins.read_text(encoding="utf-8").splitlines()
    found = [Requirement(line.removesuffix(" \\")) for line in lines if not line.startswith(("#", " "))]
    wanted = [entry for entry in found if entry.marker is None or entry.marker.evaluate(variables)]
    (exact,) = {tuple(part.operator for part in entry.specifier) for entry in found}
    assert exact == ("==",)
    versions = {str(canonicalize_name(entry.name)): next(iter(entry.specifier)).version for entry in wanted}
    assert len(versions) == len(wanted), "a package twice"
    return versions


@pytest.mark.parametrize(("name", "python"), [(name, python) for name in releases() for python in release(name).python])
def test_every_package_is_pinned_and_agrees_with_the_release(name: str, python: str) -> None:
    pinned = pins(name, python)
    text = release(name).pins.read_text(encoding="utf-8")
    assert all("--hash=sha256:" in requirement for requirement in re.split(r"\n(?=\S)", text)[1:])
    assert {package.lower() for package in packages()} <= set(pinned)
    assert python not in ("3.13", "3.14") or "legacy-cgi" in pinned, "WebOb needs it since Python 3.13"
    for distribution, version in release(name).versions:
        assert pinned[distribution] == version


def test_an_environment_is_named_by_what_is_in_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GPUSTACK_CACHE", str(tmp_path))
    entry = release("2025.2")
    names = {entry.environment("3.11"), entry.environment("3.12"), release("2026.2").environment("3.11")}
    assert len(names) == 3
    assert all(name.parent == tmp_path for name in names)


def test_an_unknown_release_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match=r"austin"):
        release("austin")
    assert main(["austin"]) == UsageError.exit_code
    assert "name one of" in capsys.readouterr().err


def test_devices_of_a_snapshot_keep_what_nova_asks_for() -> None:
    facts = {
        "address": "0000:3b:00.0",
        "vendor": "10de",
        "product": "20b5",
        "class": "030200",
        "driver": "vfio-pci",
        "iommu_group": 12,
        "numa_node": 1,
        "sriov_totalvfs": 16,
        "virtual_functions": [],
        "physical_function": None,
        "modalias": None,
    }
    (device,) = devices_of_snapshot([facts])
    attributes = asdict(device)
    wanted = {**facts, "class_": facts["class"], "virtual_functions": (), "mdev_types": ()}
    assert attributes == {key: wanted[key] for key in attributes}


def test_gpus_are_distinct_devices_in_distinct_groups() -> None:
    devices = gpus(4)
    assert len({device.address for device in devices}) == len({device.iommu_group for device in devices}) == 4
    assert {device.numa_node for device in devices} == {0, 1}
