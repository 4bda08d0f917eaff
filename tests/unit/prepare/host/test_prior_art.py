"""What other tools for preparing hosts have got wrong: each is tried here, and the shell says what came of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpustack.base.operations import RunCommand
from gpustack.linux.grub import LINUX, LINUX_DEFAULT
from gpustack.prepare.host.own_files import GRUB
from gpustack.prepare.host.plan import plan_host
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Spec
from support.boot_simulation import Machine
from support.host_samples import changed, snapshot

DEFAULTS = "/etc/default/grub"


def spec(options: str = "{}", driver: str = "vfio-pci") -> Spec:
    return parse_spec(
        "version: 1\nmodels:\n"
        f'  k4200: {{match: {{vendor: "10de", product: "11b4"}}, driver: {driver}}}\n'
        f"hosts: {{gpu01: [k4200]}}\noptions: {options}\n",
        "test",
    )


def host(grub: str, **changes: object) -> Machine:
    return Machine(changed(snapshot("k4200"), {"files": {DEFAULTS: grub}, **changes}))


def shell(machine: Machine, directory: Path, variable: str = LINUX_DEFAULT) -> str:
    """What a POSIX shell makes of GRUB's defaults, as ``grub-mkconfig`` sources them."""
    texts = machine.texts()
    paths = [DEFAULTS, *sorted(path for path in texts if path.startswith("/etc/default/grub.d/"))]
    script = "set -e\n"
    for number, path in enumerate(paths):
        (directory / str(number)).write_text(texts[path], encoding="utf-8")
        script += f". {directory}/{number}\n"
    script += f'printf %s "${variable}"'
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout


def prepared(machine: Machine, spec: Spec, *, adopt: bool = False) -> Machine:
    plan = plan_host(spec, machine.host, adopt=adopt)
    assert not plan.refused, plan.findings
    machine.carry_out(plan)
    return machine


@pytest.mark.parametrize("adopt", [False, True])
def test_with_nothing_to_add_or_remove_the_argument_list_is_not_wiped(tmp_path: Path, adopt: bool) -> None:
    """A list of patterns that is empty, joined to a regular expression, matches every argument."""
    text = f'{LINUX_DEFAULT}="quiet splash intel_iommu=on console=ttyS0"\n{LINUX}="crashkernel=auto"\n'
    machine = prepared(host(text), spec("{iommu_pt: false}"), adopt=adopt)
    assert GRUB not in machine.texts()
    assert machine.texts()[DEFAULTS] == text
    assert shell(machine, tmp_path) == "quiet splash intel_iommu=on console=ttyS0"
    assert shell(machine, tmp_path, LINUX) == "crashkernel=auto"


def test_iommu_is_neither_amd_iommu_nor_vfio_iommu_type1(tmp_path: Path) -> None:
    """An unanchored ``iommu`` takes ``amd_iommu=…`` and ``vfio_iommu_type1.…`` away as well."""
    foreign = "amd_iommu=fullflush vfio_iommu_type1.dma_entry_limit=99 iommu.strict=1 xiommu=soft"
    machine = prepared(host(f'{LINUX_DEFAULT}="iommu=soft {foreign} iommu=nopt"\n'), spec(), adopt=True)
    assert shell(machine, tmp_path) == f"{foreign} intel_iommu=on iommu=pt"


def test_a_value_is_not_cut_at_its_second_equals_sign(tmp_path: Path) -> None:
    """Splitting at every ``=`` and taking the second piece."""
    text = f'{LINUX_DEFAULT}="resume=UUID=1=2=3 iommu=soft dm-mod.create=a,b=c"\n{LINUX}="x=y=z"\n'
    machine = prepared(host(text), spec(), adopt=True)
    assert shell(machine, tmp_path) == "resume=UUID=1=2=3 dm-mod.create=a,b=c intel_iommu=on iommu=pt"
    assert shell(machine, tmp_path, LINUX) == "x=y=z"


@pytest.mark.parametrize("quotes", ["'{}'", '"{}"', "'quiet'\" {}\"", "\"quiet\"' {}'"])
def test_single_quotes_are_read_and_kept(tmp_path: Path, quotes: str) -> None:
    """A pattern for a value in double quotes misses one in single quotes, and adds the variable a second time."""
    text = f"{LINUX_DEFAULT}={quotes.format('splash iommu=soft nosmt')}\n"
    machine = prepared(host(text), spec(), adopt=True)
    quiet = ["quiet"] if "quiet" in text else []
    assert shell(machine, tmp_path).split() == [*quiet, "splash", "nosmt", "intel_iommu=on", "iommu=pt"]
    assert machine.texts()[DEFAULTS].count("\n" + LINUX_DEFAULT) == 1


@pytest.mark.parametrize("argument", ["intel_iommu=on_no", "xintel_iommu=on", "intel_iommu=only", "a.intel_iommu=on"])
def test_a_substring_is_not_taken_for_the_argument(tmp_path: Path, argument: str) -> None:
    """``intel_iommu=on`` is a part of ``intel_iommu=on_no``, and is not set by it."""
    machine = prepared(host(f'{LINUX_DEFAULT}="{argument} iommu=pt2"\n'), spec())
    assert shell(machine, tmp_path) == f"{argument} iommu=pt2 intel_iommu=on iommu=pt"


def test_a_value_that_changes_is_changed_and_not_added_beside_the_old(tmp_path: Path) -> None:
    """``name=new`` is not on the line, so it is appended: now there are two."""
    built_in = {
        "6.1.0-37-amd64": {"vfio_pci": "builtin", "nouveau": "module"},
        "6.1.0-35-amd64": {"vfio_pci": "builtin"},
    }
    machine = prepared(host(f'{LINUX_DEFAULT}="quiet"\n', kernels=built_in), spec())
    assert shell(machine, tmp_path).split().count("vfio-pci.ids=10de:0e0a,10de:11b4") == 1
    for entry in machine.raw["pci"]:  # another kind of audio function comes with the next card
        if (entry["vendor"], entry["product"]) == ("10de", "0e0a"):
            entry["product"] = "0e0b"
    prepared(machine, spec("{iommu_pt: false}"))
    assert shell(machine, tmp_path) == "quiet intel_iommu=on vfio-pci.ids=10de:0e0b,10de:11b4"


def test_what_changes_the_arguments_is_followed_by_making_the_menu() -> None:
    """A change of GRUB's defaults alone reaches no boot."""
    plan = plan_host(spec(), host(f'{LINUX_DEFAULT}="iommu=soft"\n{LINUX}="intel_iommu=on"\n').host, adopt=True)
    commands = [operation.argv for operation in plan.operations if isinstance(operation, RunCommand)]
    assert ("update-grub",) in commands
