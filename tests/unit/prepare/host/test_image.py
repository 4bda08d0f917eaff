"""Hosts in image mode: the files for their image, and the verification of a host that booted it."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from gpustack.base.errors import PlanError, UsageError
from gpustack.base.findings import Severity
from gpustack.prepare.host.image import image_for, save
from gpustack.prepare.host.own_files import KARGS, OWNED, is_untouched
from gpustack.prepare.host.plan import plan_host
from gpustack.prepare.host.prove.verify import verify_host
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Spec
from support.boot_simulation import Machine
from support.host_cases import CASES, load

ADDED = "/var/lib/gpustack/arguments"
SPEC = """\
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts:
  gpu[01:02]: [k4200]
  gpu03: {models: [k4200], options: {iommu_pt: false}}
"""


def of_case(name: str) -> tuple[Spec, Machine]:
    _, spec, machine = load(next(path for path in CASES if path.stem == name))
    return spec, machine


def as_image(machine: Machine) -> Machine:
    """The host with its kernels below /boot/ostree, where an image puts them."""
    for kernel in machine.raw["boot"]["kernels"]:
        kernel["image"] = f"/boot/ostree/rhel-ab12/{Path(kernel['image']).name}"
    return machine


@pytest.fixture
def booted() -> tuple[Spec, Machine]:
    """A host that booted an image with gpustack's files: no package of it was changed on the host."""
    spec, machine = of_case("rhel-9")
    image = image_for(spec, [as_image(of_case("rhel-9")[1]).host])
    machine.carry_out(plan_host(spec, machine.host))
    for path in ("/etc/default/grub", "/etc/kernel/cmdline", ADDED):
        machine.raw["files"].pop(path, None)
    present = {path for path in machine.raw["files"] if path in OWNED}
    assert present == image.files.keys() - {KARGS}
    for path in present:
        machine.raw["files"][path]["text"] = image.files[path].content
    return spec, as_image(machine)


def test_a_plan_is_refused_and_names_the_command() -> None:
    spec, machine = of_case("rhel-9-image-mode")
    plan = plan_host(spec, machine.host)
    assert [finding.code for finding in plan.findings] == ["GPU196"]
    assert "gpustack host image SPEC HOST --out DIR" in plan.findings[0].remedy


def test_an_image_has_arguments_modules_and_lines_for_its_containerfile(tmp_path: Path) -> None:
    spec, machine = of_case("rhel-9-image-mode")
    image = image_for(spec, [machine.host])
    assert {finding.severity for finding in image.findings} == {Severity.INFO}
    before = os.umask(0o077)  # directories of the image get the modes of these
    try:
        paths = {path.relative_to(tmp_path / "out") for path in save(image, tmp_path / "out")}
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "out").rglob("*") if path.is_dir()} == {0o755}
    assert {str(path) for path in paths} == {
        "Containerfile.gpustack",
        "etc/dracut.conf.d/90-gpustack.conf",
        "etc/modprobe.d/gpustack.conf",
        "etc/modules-load.d/gpustack.conf",
        "usr/lib/bootc/kargs.d/90-gpustack.toml",
    }
    kargs = (tmp_path / "out/usr/lib/bootc/kargs.d/90-gpustack.toml").read_text(encoding="utf-8")
    assert tomllib.loads(kargs) == {"kargs": ["intel_iommu=on", "iommu=pt"]}
    assert is_untouched(kargs)
    fragment = (tmp_path / "out/Containerfile.gpustack").read_text(encoding="utf-8")
    assert "COPY etc/ /etc/\nCOPY usr/ /usr/\nRUN kernel=$(ls /usr/lib/modules)" in fragment
    with pytest.raises(UsageError, match="not empty"):
        save(image, tmp_path / "out")


def test_a_host_of_the_image_is_verified(booted: tuple[Spec, Machine]) -> None:
    spec, machine = booted
    verification = verify_host(spec, machine.host, machine.images)
    assert verification.passed
    assert [finding.code for finding in verification.findings] == []


@pytest.mark.parametrize("fault", ["file", "arguments", "initramfs", "driver"])
def test_a_host_of_another_image_is_not_ready_and_is_told_how(fault: str, booted: tuple[Spec, Machine]) -> None:
    spec, machine = booted
    images = machine.images
    if fault == "file":
        machine.raw["files"]["/etc/modprobe.d/gpustack.conf"]["text"] += "# changed\n"
    elif fault == "arguments":
        machine.raw["kernel"]["command_line"] = "root=/dev/sda1 ro"
    elif fault == "initramfs":
        images = {}
    else:
        for function in machine.raw["pci"]:
            if function["driver"] == "vfio-pci":
                function["driver"] = "nouveau"
    verification = verify_host(spec, machine.host, images)
    assert not verification.passed
    assert "GPU196" in [finding.code for finding in verification.findings]


def test_a_host_in_package_mode_is_prepared_there() -> None:
    spec, machine = of_case("rhel-9")
    assert not plan_host(spec, machine.host).refused
    with pytest.raises(UsageError, match="not in image mode"):
        image_for(spec, [machine.host])
    with pytest.raises(UsageError, match="no host is left"):
        image_for(spec, [])


def test_hosts_of_different_kinds_need_different_images() -> None:
    spec = parse_spec(SPEC, "gpustack.yaml")
    hosts = []
    for number in (1, 2, 3):
        _, machine = of_case("rhel-9-image-mode")
        machine.raw["hostname"] = f"gpu0{number}"
        hosts.append(machine.host)
    assert image_for(spec, hosts[:2]).hosts == ("gpu01", "gpu02")
    with pytest.raises(PlanError, match="gpu03 would need another image than gpu01"):
        image_for(spec, hosts)


def test_cards_that_are_shared_are_refused() -> None:
    spec, machine = of_case("shared-card")
    with pytest.raises(UsageError, match="SR-IOV"):
        image_for(spec, [as_image(machine).host])
