"""Trial boots: what is planned before, while one runs, and after one that went wrong; and where none is possible."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpustack.base.operations import Reboot, TrialReboot, WriteFile
from gpustack.prepare.host.next_boot.trial import ARGUMENTS, ENTRY, MARKER, TITLE, files
from gpustack.prepare.host.own_files import GRUB, OWNED, TRIAL_ENTRY, TRIAL_UNIT
from gpustack.prepare.host.plan import HostPlan, plan_host
from gpustack.prepare.host.prove.verify import verify_host
from gpustack.prepare.host.show import show_plan
from gpustack.prepare.host.undo import plan_undo
from gpustack.spec.model import Spec
from support.boot_simulation import Machine
from support.host_cases import load

CASES = Path(__file__).parents[1] / "cases"
SECONDS = 600
PERMANENT = [f"create {GRUB}", f"remove {TRIAL_UNIT}", f"remove {TRIAL_ENTRY}", "run update-grub"]
ENVIRONMENT = {
    "path": "/boot/grub/grubenv",
    "exists": True,
    "read": True,
    "saved_entry": None,
    "next_entry": None,
    "filesystem": "ext4",
    "device": "disk",
}


def installed(case: str = "first-run", **environment: Any) -> tuple[Spec, Machine]:
    _, spec, machine = load(CASES / f"{case}.yaml")
    machine.raw["boot"]["environment"] = {**ENVIRONMENT, **environment}
    return spec, machine


def done(plan: HostPlan) -> list[str]:
    return [operation.describe().partition(" with the new")[0] for operation in plan.operations]


def codes(plan: HostPlan) -> list[str]:
    return [finding.code for finding in plan.findings if finding.code.startswith(("GPU16", "GPU22"))]


def test_the_arguments_are_written_where_only_the_trial_has_them() -> None:
    spec, machine = installed()
    before = [entry["arguments"] for entry in machine.raw["boot"]["entries"]]
    plan = plan_host(spec, machine.host, trial=SECONDS)
    assert done(plan) == [
        "create /etc/modprobe.d/gpustack.conf",
        "create /etc/initramfs-tools/hooks/gpustack",
        "create /etc/modules-load.d/gpustack.conf",
        f"create {TRIAL_UNIT}",
        f"create {TRIAL_ENTRY}",
        "run update-initramfs -u -k 6.1.0-37-amd64",
        "run update-initramfs -u -k 6.1.0-35-amd64",
        "run update-grub",
        "reboot",
    ]
    assert "otherwise the next boot is the old one" in show_plan(plan)
    assert plan.to_dict()["trial"] == {
        "entry": ENTRY,
        "marker": MARKER,
        "seconds": SECONDS,
        "select": ["grub-reboot", ENTRY],
        "confirm": ["systemctl", "stop", "gpustack-trial.service"],
        "forget": ["grub-editenv", "-", "unset", "next_entry"],
        "running": False,
    }
    for operation in plan.operations[:-1]:
        machine.do(operation)
    *ordinary, tried = machine.raw["boot"]["entries"]
    assert [entry["arguments"].split() for entry in ordinary] == [arguments.split() for arguments in before]
    assert tried["title"] == TITLE
    assert {"intel_iommu=on", "iommu=pt", MARKER, "panic=15"} <= set(tried["arguments"].split())


def test_a_trial_that_goes_well_becomes_permanent() -> None:
    spec, machine = installed()
    machine.carry_out(plan_host(spec, machine.host, trial=SECONDS))
    assert verify_host(spec, machine.host, None, trial=True).passed
    assert "GPU214" in {finding.code for finding in verify_host(spec, machine.host, machine.images).findings}
    for seconds in (None, SECONDS):  # whoever comes next makes it permanent, asked for a trial or not
        plan = plan_host(spec, machine.host, trial=seconds)
        assert plan.in_trial
        assert codes(plan) == ["GPU162"]
        assert done(plan) == PERMANENT
    machine.carry_out(plan)
    assert verify_host(spec, machine.host, machine.images).passed
    assert MARKER in machine.raw["kernel"]["command_line"]
    for _ in range(2):
        plan = plan_host(spec, machine.host, trial=SECONDS)
        assert (done(plan), plan.trial, codes(plan)) == ([], None, [])
        machine.boot()
    assert MARKER not in machine.raw["kernel"]["command_line"]


def test_a_trial_that_fell_back_can_be_tried_again_or_made_an_ordinary_boot() -> None:
    spec, machine = installed()
    machine.carry_out(plan_host(spec, machine.host, trial=SECONDS))
    machine.boot()
    assert not verify_host(spec, machine.host, None, trial=True).passed
    plan = plan_host(spec, machine.host, trial=SECONDS)
    assert not plan.in_trial
    assert [type(operation) for operation in plan.operations] == [TrialReboot]
    plan = plan_host(spec, machine.host)
    assert done(plan) == [
        f"create {GRUB}",
        f"remove {TRIAL_UNIT}",
        f"remove {TRIAL_ENTRY}",
        "run update-grub",
        "reboot",
    ]
    assert [type(operation) for operation in plan.operations][-1] is Reboot
    machine.carry_out(plan)
    assert verify_host(spec, machine.host, machine.images).passed


@pytest.mark.parametrize("count", range(1, 9))
def test_a_run_that_breaks_before_the_trial_is_taken_up_again(count: int) -> None:
    spec, machine = installed()
    for operation in plan_host(spec, machine.host, trial=SECONDS).operations[:count]:
        machine.do(operation)
    machine.carry_out(plan_host(spec, machine.host, trial=SECONDS))
    assert verify_host(spec, machine.host, None, trial=True).passed


@pytest.mark.parametrize("reboot", [False, True])
@pytest.mark.parametrize("count", range(4))
def test_a_run_that_breaks_while_it_makes_a_trial_permanent_is_taken_up_again(count: int, reboot: bool) -> None:
    spec, machine = installed()
    machine.carry_out(plan_host(spec, machine.host, trial=SECONDS))
    for operation in plan_host(spec, machine.host, trial=SECONDS).operations[:count]:
        machine.do(operation)
    if reboot:
        machine.boot()
    for _ in range(3):
        machine.carry_out(plan_host(spec, machine.host))
    assert verify_host(spec, machine.host, machine.images).passed
    assert not {TRIAL_UNIT, TRIAL_ENTRY} & set(machine.texts())
    assert [entry for entry in machine.raw["boot"]["entries"] if entry["title"] == TITLE] == []


def test_other_arguments_leave_the_old_drop_in_for_the_old_boot() -> None:
    spec, machine = installed()
    machine.carry_out(plan_host(spec, machine.host))
    text = machine.texts()[GRUB]
    spec = spec.model_copy(update={"options": spec.options.model_copy(update={"iommu_pt": False})})
    plan = plan_host(spec, machine.host, trial=SECONDS)
    assert [op.path for op in plan.operations if isinstance(op, WriteFile)] == [TRIAL_UNIT, TRIAL_ENTRY]
    machine.carry_out(plan)
    assert machine.texts()[GRUB] == text
    assert "iommu=pt" not in machine.raw["kernel"]["command_line"].split()
    machine.carry_out(plan_host(spec, machine.host, trial=SECONDS))
    assert verify_host(spec, machine.host, machine.images).passed


def test_without_new_arguments_there_is_no_trial() -> None:
    spec, machine = installed("amd-nothing-to-add")
    machine.carry_out(plan_host(spec, machine.host))
    machine.raw["files"]["/etc/modprobe.d/gpustack.conf"]["text"] += "# changed\n"
    for entry in machine.raw["pci"]:
        if entry["driver"] == "vfio-pci":
            entry["driver"] = "amdgpu"
    plan = plan_host(spec, machine.host, trial=SECONDS)
    assert type(plan.operations[-1]) is Reboot
    assert plan.to_dict() == plan_host(spec, machine.host).to_dict()


def test_arguments_that_are_in_the_menu_already_are_not_tried() -> None:
    spec, machine = installed()
    machine.carry_out(plan_host(spec, machine.host), reboot=False)
    plan = plan_host(spec, machine.host, trial=SECONDS)
    assert codes(plan) == ["GPU161"]
    assert plan.trial is None
    assert not plan.refused


@pytest.mark.parametrize(
    ("environment", "code", "message"),
    [
        ({"exists": False}, "GPU223", "this file does not exist"),
        ({"read": False}, "GPU224", "does not read next_entry"),
        ({"filesystem": "btrfs", "device": None}, "GPU225", "is on btrfs, where GRUB can't write"),
        ({"filesystem": "zfs", "device": None}, "GPU225", "is on zfs"),
        ({"device": "lvm"}, "GPU225", "is on a logical volume"),
        ({"device": "raid"}, "GPU225", "is on software RAID"),
        ({"device": "crypt"}, "GPU225", "is on an encrypted device"),
        ({"device": None}, "GPU225", "a block device that the facts don't name"),
        ({"filesystem": None, "device": None}, "GPU222", "file system of this file is unknown"),
        ({"next_entry": "memtest"}, "GPU226", "set to memtest"),
    ],
)
def test_where_grub_cannot_do_it_the_plan_refuses_before(environment: dict[str, Any], code: str, message: str) -> None:
    spec, machine = installed(**environment)
    plan = plan_host(spec, machine.host, trial=SECONDS)
    assert plan.refused
    assert plan.operations == ()
    assert codes(plan) == [code]
    assert message in show_plan(plan)
    assert [f.place for f in plan.findings] == ["gpu01 /boot/grub/grubenv"]
    assert not plan_host(spec, machine.host).refused


@pytest.mark.parametrize(
    ("default", "saved", "refused"),
    [
        (None, None, False),
        ("0", None, False),
        ("saved", None, False),
        ("saved", "gnulinux-advanced", True),
        ("2", None, True),
        ("$(cat /x)", None, True),
    ],
)
def test_the_default_must_be_the_entry_whose_kernel_is_tried(
    default: str | None, saved: str | None, refused: bool
) -> None:
    spec, machine = installed(saved_entry=saved)
    if default is not None:
        machine.raw["files"]["/etc/default/grub"]["text"] += f'\nGRUB_DEFAULT="{default}"\n'
    plan = plan_host(spec, machine.host, trial=SECONDS)
    assert plan.refused is refused
    assert ("GPU228" in codes(plan)) is refused


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("GRUB_TIMEOUT=-1", True),
        ("GRUB_RECORDFAIL_TIMEOUT=-1", True),
        ("GRUB_RECORDFAIL_TIMEOUT=0", False),
        ("GRUB_TIMEOUT=30", False),
    ],
)
def test_a_menu_that_waits_for_somebody_would_keep_the_host_from_coming_back(line: str, refused: bool) -> None:
    spec, machine = installed()
    machine.raw["files"]["/etc/default/grub"]["text"] += f"\n{line}\n"
    plan = plan_host(spec, machine.host, trial=SECONDS)
    assert plan.refused is refused
    assert ("GPU227" in codes(plan)) is refused
    assert not plan_host(spec, machine.host).refused


def test_a_snapshot_without_the_environment_is_refused_as_such() -> None:
    spec, machine = installed()
    machine.raw["boot"]["environment"] = None
    assert codes(plan_host(spec, machine.host, trial=SECONDS)) == ["GPU222"]


def test_undo_takes_a_trial_away() -> None:
    spec, machine = installed()
    before = machine.texts()
    machine.carry_out(plan_host(spec, machine.host, trial=SECONDS))
    machine.carry_out(plan_undo(machine.host))
    assert machine.texts() == before
    assert [entry for entry in machine.raw["boot"]["entries"] if entry["title"] == TITLE] == []
    assert not set(OWNED) & set(machine.texts())


TEN_LINUX = """#!/bin/sh
echo "function gfxmode {
}"
printf "menuentry 'An OS' --class gnu-linux --unrestricted %s 'simple-id' {\\n\\tif true; then\\n\\t  x\\n\\tfi\\n" \
'$menuentry_id_option'
printf '\\tlinux /vmlinuz root=x %s %s\\n}\\n' "$GRUB_CMDLINE_LINUX" "$GRUB_CMDLINE_LINUX_DEFAULT"
echo "menuentry 'Another' --class x {
}"
"""


def entry_of(path: Path, line: str, ten_linux: str = TEN_LINUX) -> subprocess.CompletedProcess[str]:
    """What a real shell and a real awk make of the script that adds the trial entry."""
    rendered = files(line, SECONDS)
    for name, text in (("10_linux", ten_linux), ("45_trial", rendered[TRIAL_ENTRY].content)):
        (path / name).write_text(text, encoding="utf-8")
        (path / name).chmod(0o755)
    return subprocess.run(
        [path / "45_trial"], cwd=path, capture_output=True, text=True, env={"PATH": os.environ["PATH"]}, check=False
    )


def test_the_entry_is_the_first_ordinary_one_with_other_arguments(tmp_path: Path) -> None:
    process = entry_of(tmp_path, "quiet dyndbg=\"file a +p\" b='c'")
    assert process.returncode == 0, process.stderr
    first, *middle, line, last = process.stdout.splitlines()
    assert first == f"menuentry '{TITLE}' --class gnu-linux --unrestricted --id {ENTRY} {{"
    assert middle == ["\tif true; then", "\t  x", "\tfi"]
    assert line == f"\tlinux /vmlinuz root=x quiet dyndbg=\"file a +p\" b='c' {' '.join(ARGUMENTS)}"
    assert last == "}"


def test_without_an_ordinary_entry_the_menu_is_not_made(tmp_path: Path) -> None:
    assert entry_of(tmp_path, "quiet", "#!/bin/sh\n").returncode != 0


WORDS = st.text(st.characters(codec="ascii", min_codepoint=32), max_size=40)


@settings(deadline=None, max_examples=25)
@given(line=WORDS)
def test_no_command_line_becomes_a_command(tmp_path_factory: pytest.TempPathFactory, line: str) -> None:
    path = tmp_path_factory.mktemp("grub.d")
    process = entry_of(
        path, line, '#!/bin/sh\nprintf "menuentry \'x\' --class y {\\n%s\\n}\\n" "$GRUB_CMDLINE_LINUX"\n'
    )
    assert sorted(entry.name for entry in path.iterdir()) == ["10_linux", "45_trial"]
    if line.strip() != "}" and "menuentry " not in line:
        assert process.stdout.splitlines()[1] == line


def test_boot_entries_in_files_are_not_tried() -> None:
    _, spec, machine = load(CASES / "rhel-9.yaml")
    plan = plan_host(spec, machine.host, trial=SECONDS)
    assert plan.refused
    assert "GPU160" in codes(plan)
    assert "not GRUB with a menu in grub.cfg" in show_plan(plan)
