"""Hand-made configuration is adopted on request, and undo restores it to the byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpustack.base.errors import HostError
from gpustack.base.operations import RemoveFile, WriteFile
from gpustack.hosts.facts.collector.limits import TEXT_LIMIT
from gpustack.linux.grub import LINUX, LINUX_DEFAULT, read_defaults
from gpustack.prepare.host.own_files import ADOPTED, OWNED
from gpustack.prepare.host.plan import HostPlan, plan_host
from gpustack.prepare.host.prove.undone import verify_undone
from gpustack.prepare.host.prove.verify import verify_host
from gpustack.prepare.host.undo import plan_undo
from gpustack_demo.examples.handmade import hand_made_host
from support.boot_simulation import Machine
from support.host_cases import CASES, SPEC, load
from support.host_samples import changed, snapshot
from support.prior_setups import FIRST_CARD, GRUB, codes, hand_made, machine, messages


def test_taken_over_verified_and_given_back_to_the_byte() -> None:
    host = hand_made()
    before = host.texts()
    plan = plan_host(SPEC, host.host, adopt=True)
    assert not plan.refused, plan.findings
    assert plan.operations[0].describe() == f"create {ADOPTED}"
    reported = set(messages(plan, "GPU171"))
    assert {"/etc/rc.local:5", "/etc/modprobe.d/vfio.conf:2", "/etc/default/grub:4"} <= reported
    host.carry_out(plan)
    after = host.texts()
    grub = read_defaults(after)
    assert grub.text(LINUX_DEFAULT) == "quiet splash intel_iommu=on iommu=pt"
    assert grub.text(LINUX) == read_defaults(before).text(LINUX)
    assert after["/etc/modules"].splitlines()[-2:] == ["kvm", "kvm_intel"]
    assert "blacklist pcspkr" in after["/etc/modprobe.d/blacklist.conf"].splitlines()
    assert "options vfio-pci disable_vga=1" in after["/etc/modprobe.d/vfio.conf"].splitlines()
    assert "/etc/driverctl.d/0000:84:00.1" not in after
    assert {f["driver"] for f in host.raw["pci"] if f["vendor"] == "10de"} == {"vfio-pci"}
    assert verify_host(SPEC, host.host, host.images).passed
    for adopt in (False, True):
        host_plan = plan_host(SPEC, host.host, adopt=adopt)
        assert not host_plan.operations, host_plan.operations
    undo = plan_undo(host.host)
    assert not undo.refused
    host.carry_out(undo)
    assert host.texts() == before
    assert verify_undone(host.host, host.images).passed
    assert not plan_undo(host.host).operations


@pytest.mark.parametrize("count", range(1, 18))
def test_a_run_that_broke_is_finished_by_the_next_and_given_back(count: int) -> None:
    host = hand_made()
    before = host.texts()
    for operation in plan_host(SPEC, host.host, adopt=True).operations[:count]:
        host.do(operation)
    host.carry_out(plan_host(SPEC, host.host, adopt=True))
    assert verify_host(SPEC, host.host, host.images).passed
    for operation in plan_undo(host.host).operations[:count]:
        host.do(operation)
    host.carry_out(plan_undo(host.host))
    assert host.texts() == before


def test_a_file_that_was_changed_since_keeps_the_change() -> None:
    host = hand_made()
    host.carry_out(plan_host(SPEC, host.host, adopt=True))
    path = "/etc/modprobe.d/blacklist.conf"
    host.raw["files"][path]["text"] += "blacklist floppy\n"
    host.raw["files"][GRUB]["text"] = host.raw["files"][GRUB]["text"].replace("TIMEOUT=5", "TIMEOUT=9")
    del host.raw["files"]["/etc/modprobe.d/vfio.conf"]
    plan = plan_undo(host.host)
    assert set(messages(plan, "GPU174")) == {path, GRUB}
    assert set(messages(plan, "GPU175")) == {"/etc/modprobe.d/vfio.conf"}
    host.carry_out(plan)
    files = hand_made_host().files
    assert host.texts()[path] == files[path] + "blacklist floppy\n"
    assert host.texts()[GRUB] == files[GRUB].replace("TIMEOUT=5", "TIMEOUT=9")
    assert "/etc/modprobe.d/vfio.conf" not in host.texts()


def test_an_edited_remainder_of_a_line_is_reported_as_not_restored() -> None:
    host = hand_made()
    host.carry_out(plan_host(SPEC, host.host, adopt=True))
    path, remainder = "/etc/modprobe.d/vfio.conf", "\noptions vfio-pci disable_vga=1\n"
    edited = host.texts()[path].replace(remainder, remainder.replace("1", "0"))
    host.raw["files"][path]["text"] = edited
    host.raw["files"][GRUB]["text"] += "# seen\n"
    plan = plan_undo(host.host)
    (restored,), (kept,) = messages(plan, "GPU174")[GRUB], messages(plan, "GPU174")[path]
    assert restored.endswith(": that part is restored, and the changes stay")
    assert "the line below each comment '# gpustack has taken a part of this over:' is not restored" in kept
    host.carry_out(plan)
    assert remainder.replace("1", "0") in host.texts()[path]


def test_lines_that_came_later_are_taken_over_as_well() -> None:
    host = hand_made()
    host.carry_out(plan_host(SPEC, host.host, adopt=True))
    path = "/etc/modprobe.d/vfio.conf"
    host.raw["files"][path]["text"] += "options vfio-pci ids=10de:0e0a\n"
    host.carry_out(plan_host(SPEC, host.host, adopt=True))
    assert not plan_host(SPEC, host.host).refused
    host.carry_out(plan_undo(host.host))
    assert host.texts()[path] == hand_made_host().files[path] + "options vfio-pci ids=10de:0e0a\n"


@pytest.mark.parametrize(
    "text",
    ["", "{", "# x\n[]", '# x\n{"/etc/passwd\\n": 1}', '# x\n{"/root/a": {"before": "", "after": "", "mode": "0644"}}'],
)
def test_a_foreign_journal_is_reported(text: str) -> None:
    host = hand_made()
    host.raw["files"][ADOPTED] = {"text": text, "mode": "0600", "mtime_ns": 1}
    with pytest.raises(HostError, match="journal of adopted configuration is malformed"):
        plan_undo(host.host)


def test_what_binds_devices_that_the_spec_does_not_name_is_left() -> None:
    """The ids of a network card that goes to guests by other means."""
    host = machine({"/etc/modprobe.d/vfio.conf": "options vfio-pci ids=10de:11b4,8086:1521\n"})
    functions = {f"{f.vendor}:{f.product}" for f in host.host.pci}
    assert "8086:1521" in functions
    plan = plan_host(SPEC, host.host, adopt=True)
    assert plan.refused
    assert "8086:1521" in messages(plan, "GPU172")["/etc/modprobe.d/vfio.conf:1"][0]
    assert "GPU135" in codes(plan)


@pytest.mark.parametrize(
    ("ids", "foreign"),
    [
        ("10de:ffffffff:ffffffff:ffffffff:00030000:ffff00ff", "0000:88:00.0 (10de:11b4)"),
        ("ffffffff:11b4", "0000:88:00.0 (10de:11b4)"),
        ("10de:0xffffffff", "0000:88:00.0 (10de:11b4), 0000:88:00.1 (10de:0e0a)"),
        ("10de:11b4,10de:0e0a", "0000:88:00.0 (10de:11b4), 0000:88:00.1 (10de:0e0a)"),
        ("10de:11b4:10de:1096:zz", "0000:88:00.0 (10de:11b4)"),
        ("10de:11b4:10de:1097", None),
        ("10de:11b4:ffffffff:ffffffff:040300:ffffff", None),
    ],
)
def test_ids_that_bind_another_card_are_not_adopted(ids: str, foreign: str | None) -> None:
    path = "/etc/modprobe.d/vfio.conf"
    plan = plan_host(FIRST_CARD, machine({path: f"options vfio-pci ids={ids}\n"}).host, adopt=True)
    assert plan.refused is (foreign is not None)
    if foreign is None:
        assert set(messages(plan, "GPU171")) == {f"{path}:1"}
        return
    [message] = messages(plan, "GPU172")[f"{path}:1"]
    assert f"it also binds {foreign}, which the spec does not name" in message


@pytest.mark.parametrize(
    ("character", "length", "fits"), [("x", 120_000, True), ("é", 20_000, True), ("é", 22_000, False)]
)
def test_a_journal_that_can_not_be_read_again_is_not_written(character: str, length: int, fits: bool) -> None:
    """The journal escapes characters, and holds each file twice. The collector reads 256 KiB of it."""
    host = machine({"/etc/modprobe.d/vfio.conf": f"# {character * length}\noptions pci-stub ids=10de:11b4\n"})
    if not fits:
        with pytest.raises(HostError, match="too large"):
            plan_host(SPEC, host.host, adopt=True)
        return
    operations = plan_host(SPEC, host.host, adopt=True).operations
    [journal] = [o for o in operations if isinstance(o, WriteFile) and o.path == ADOPTED]
    assert len(journal.content.encode()) <= TEXT_LIMIT


def test_a_file_that_is_not_known_to_the_byte_is_left() -> None:
    host = machine({"/etc/modprobe.d/vfio.conf": "# \ufffd\noptions vfio-pci ids=10de:11b4\n"})
    plan = plan_host(SPEC, host.host, adopt=True)
    assert plan.refused
    assert "/etc/modprobe.d/vfio.conf:2" in messages(plan, "GPU172")


def test_ids_in_quotes_are_taken_out_with_both_quotes() -> None:
    """A quote that stayed would make the kernel read all later options of vfio-pci as one."""
    path = "/etc/modprobe.d/vfio.conf"
    host = machine({path: 'options vfio-pci ids="10de:11b4, 10de:0e0a" disable_vga=1\n'})
    plan = plan_host(SPEC, host.host, adopt=True)
    assert not plan.refused
    host.carry_out(plan)
    assert host.texts()[path].splitlines()[1:] == ["options vfio-pci disable_vga=1"]


def test_no_trial_where_arguments_are_taken_over() -> None:
    """The old boot would not be the old one any more."""
    plan = plan_host(SPEC, hand_made().host, adopt=True, trial=600)
    assert plan.refused
    assert "GPU229" in codes(plan)


def test_only_what_is_named_changes() -> None:
    host = hand_made()
    plan = plan_host(SPEC, host.host, adopt=True)
    files = {place.rpartition(":")[0] if ".d/0000" not in place else place for place in messages(plan, "GPU171")}
    touched = {o.path for o in plan.operations if isinstance(o, WriteFile | RemoveFile)}
    assert touched - {*OWNED, ADOPTED} == files


ARGUMENTS = st.sampled_from(
    [
        "quiet",
        "vfio-pci.ids=10de:11b4",
        "pci-stub.ids=10de:11b4,10de:0e0a",
        "x=vfio-pci.ids=10de:11b4",
        "iommu=soft",
        "amd_iommu=fullflush",
        "vfio_iommu_type1.allow_unsafe_interrupts=1",
        "resume=UUID=1=2",
        'dyndbg=\\"file a.c +p\\"',
        "console=ttyS0,115200",
    ]
)


OURS = ("vfio-pci.ids=", "pci-stub.ids=", "iommu=soft", "vfio_iommu_type1.allow_unsafe")


@settings(max_examples=80, deadline=None)
@given(
    st.lists(ARGUMENTS, max_size=6), st.lists(ARGUMENTS, max_size=4), st.sampled_from([" ", "  ", "\t"]), st.booleans()
)
def test_arguments_are_taken_out_one_by_one_and_come_back(
    first: list[str], second: list[str], blank: str, newline: bool
) -> None:
    """Nothing else of the command line changes, whatever stands there; and what was there comes back."""
    text = f'{LINUX_DEFAULT}="{blank.join(first)}"\n{LINUX}="{" ".join(second)}" # end' + "\n" * newline
    host = machine({GRUB: text})
    plan = plan_host(SPEC, host.host, adopt=True)
    assert not plan.refused
    [*contents] = [o.content for o in plan.operations if isinstance(o, WriteFile) and o.path == GRUB]
    now = read_defaults({GRUB: contents[0] if contents else text})
    for variable, arguments in ((LINUX_DEFAULT, first), (LINUX, second)):
        retained = [a.replace("\\", "") for a in arguments if not a.startswith(OURS)]
        assert [s.argument.text for s in now.arguments(variable) or ()] == retained
    host.carry_out(plan)
    host.carry_out(plan_undo(host.host))
    assert host.texts()[GRUB] == text


def test_the_plan_as_data_holds_every_line() -> None:
    data: dict[str, Any] = plan_host(SPEC, hand_made().host, adopt=True).to_dict()
    assert json.dumps(data)
    journal = next(o for o in data["operations"] if o["path"] == ADOPTED)
    files = json.loads(journal["content"].partition("\n")[2])
    assert files[GRUB]["before"] == hand_made_host().files[GRUB]


def test_what_takes_an_argument_out_is_the_tool_of_the_host() -> None:
    _, spec, host = load(Path(__file__).parents[1] / "cases" / "systemd-boot-switched-off.yaml")
    reported = [f.message for f in plan_host(spec, host.host, adopt=True).findings if f.code == "GPU172"]
    assert len(reported) == 3
    assert all("`kernel-install add RELEASE IMAGE`" in message and "grubby" not in message for message in reported)


_OFFER = "gpustack_adopt"
_OFFERED = frozenset({"GPU120", "GPU135", "GPU140", "GPU143", "GPU218"})
ENTRY = "/boot/loader/entries/4a-5.14.0-427.13.1.el9_4.x86_64.conf"


def offers(plan: HostPlan) -> set[tuple[str, str]]:
    return {(f.code, f.place) for f in plan.findings if f.code in _OFFERED and _OFFER in f.remedy}


_CONFLICTS = [path for path in CASES if any(code in path.read_text(encoding="utf-8") for code in _OFFERED)]


@pytest.mark.parametrize("path", _CONFLICTS, ids=[path.stem for path in _CONFLICTS])
def test_what_a_remedy_offers_to_adopt_is_adopted(path: Path) -> None:
    _, spec, machine = load(path)
    offered = offers(plan_host(spec, machine.host))
    adopted = plan_host(spec, machine.host, adopt=True)
    assert not offers(adopted)
    remaining = {(f.code, f.place) for f in adopted.findings if f.code in _OFFERED}
    assert not offered & remaining


def redhat(arguments: str, files: dict[str, str]) -> Machine:
    _, _, machine = load(next(path for path in CASES if path.stem == "rhel-9"))
    machine.raw = changed(machine.raw, {"arguments": f"root=/dev/sda1 ro {arguments}", "files": files})
    return machine


def remedies(machine: Machine, *, adopt: bool = False) -> dict[str, str]:
    plan = plan_host(SPEC, machine.host, adopt=adopt)
    assert plan.refused
    return {f.place.removeprefix("gpu01 "): f.remedy for f in plan.findings if f.code in _OFFERED}


@pytest.mark.parametrize("adopt", [False, True])
def test_boot_entries_name_grubby_and_the_files_with_the_argument(adopt: bool) -> None:
    files = {"/etc/kernel/cmdline": "root=/dev/sda1 ro vfio-pci.ids=10de:11b4\n"}
    by_place = remedies(redhat("vfio-pci.ids=10de:11b4", files), adopt=adopt)
    assert by_place[ENTRY] == (
        "`grubby --update-kernel=ALL --remove-args=vfio-pci.ids=10de:11b4 --no-etc-grub-update`; take it out of "
        "/etc/kernel/cmdline as well, then plan again; gpustack can't take it over"
    )


def test_an_argument_of_edpm_is_changed_in_edpm() -> None:
    text = (
        'GRUB_CMDLINE_LINUX="quiet"\nGRUB_EDPM_KERNEL_ARGS=" intel_iommu=off "\n'
        'GRUB_CMDLINE_LINUX="${GRUB_CMDLINE_LINUX:+$GRUB_CMDLINE_LINUX }${GRUB_EDPM_KERNEL_ARGS}"\n'
    )
    by_place = remedies(redhat("intel_iommu=off", {"/etc/default/grub": text}))
    change = "change edpm_kernel_args of the node set: intel_iommu=off comes from GRUB_EDPM_KERNEL_ARGS"
    assert {place: remedy.partition(" (")[0] for place, remedy in by_place.items()} == dict.fromkeys(by_place, change)
    assert {"/etc/default/grub:2", ENTRY} <= set(by_place)


def test_an_argument_of_tuned_in_a_boot_entry_is_changed_in_tuned() -> None:
    files = {"/etc/tuned/bootcmdline": 'TUNED_BOOT_CMDLINE="skew_tick=1 intel_iommu=off"\n'}
    by_place = remedies(redhat("skew_tick=1 intel_iommu=off", files))
    assert set(by_place) == {"/etc/tuned/bootcmdline:1"}
    assert by_place["/etc/tuned/bootcmdline:1"].startswith("choose or write a tuned profile that does not set")


def test_a_file_of_a_package_is_hidden_by_one_in_etc() -> None:
    rule = 'SUBSYSTEM=="pci", ATTR{vendor}=="0x10de", ATTR{device}=="0x11b4", RUN+="/bin/driverctl set-override x"\n'
    files = {
        "/usr/lib/udev/rules.d/80-gpu.rules": rule,
        "/usr/lib/modprobe.d/x.conf": "options vfio-pci ids=10de:11b4\n",
        "/usr/lib/dracut/dracut.conf.d/99-x.conf": 'omit_drivers+=" nvidia vfio "\n',
    }
    by_place = remedies(Machine(changed(snapshot("k4200"), {"files": files})), adopt=True)
    assert {place: remedy.partition(" hides")[0] for place, remedy in by_place.items()} == {
        "/usr/lib/udev/rules.d/80-gpu.rules:1": "`ln -s /dev/null /etc/udev/rules.d/80-gpu.rules`",
        "/usr/lib/modprobe.d/x.conf:1": "`ln -s /dev/null /etc/modprobe.d/x.conf`",
        "/usr/lib/dracut/dracut.conf.d/99-x.conf:1": "`ln -s /dev/null /etc/dracut.conf.d/99-x.conf`",
    }
