"""Hosts that somebody has set up by hand: what is there is named, taken over on request, and given back."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpustack.errors import HostError
from gpustack.facts.collector.limits import TEXT_LIMIT
from gpustack.host.own_files import ADOPTED, OWNED
from gpustack.host.plan import HostPlan, plan_host
from gpustack.host.prior_setup.foreign_config import elsewhere
from gpustack.host.prove.undone import verify_undone
from gpustack.host.prove.verify import verify_host
from gpustack.host.undo import plan_undo, still_kept
from gpustack.linux.grub import LINUX, LINUX_DEFAULT, read_defaults
from gpustack.operations import RemoveFile, WriteFile
from gpustack.spec.load import parse_spec
from gpustack_demo.examples.handmade import hand_made_host
from support.boot_simulation import Machine
from support.host_cases import SPEC, load
from support.host_samples import changed, snapshot

FIRST_CARD = parse_spec(
    "version: 1\nmodels:\n"
    '  k4200: {match: {vendor: "10de", product: "11b4", addresses: ["0000:84:00.0"]}}\nhosts: {gpu01: [k4200]}\n',
    "test",
)
GRUB = "/etc/default/grub"


def machine(files: dict[str, str]) -> Machine:
    raw = changed(snapshot("k4200"), {"files": files})
    if "/etc/rc.local" in files:
        raw["files"]["/etc/rc.local"]["mode"] = "0755"
    return Machine(raw)


def hand_made() -> Machine:
    return machine(dict(hand_made_host().files))


def codes(plan: HostPlan) -> set[str]:
    return {f.code for f in plan.findings}


def messages(plan: HostPlan, code: str) -> dict[str, list[str]]:
    by_place: dict[str, list[str]] = {}
    for f in plan.findings:
        if f.code == code:
            by_place.setdefault(f.place.partition(" ")[2], []).append(f.message)
    return by_place


def test_without_leave_what_disagrees_is_named_with_file_and_line_and_nothing_is_done() -> None:
    plan = plan_host(SPEC, hand_made().host)
    assert plan.refused
    assert plan.operations == ()
    errors = {(f.code, f.place.removeprefix("gpu01 ")) for f in plan.findings if f.severity == "error"}
    assert errors == {
        ("GPU120", "/etc/default/grub:4"),
        ("GPU135", "/etc/default/grub:4"),
        ("GPU135", "/etc/initramfs-tools/modules:2"),
        ("GPU135", "/etc/modprobe.d/vfio.conf:2"),
        ("GPU143", "/etc/rc.local:2"),
        ("GPU143", "/etc/rc.local:3"),
        ("GPU143", "/etc/rc.local:5"),
        ("GPU143", "/etc/rc.local:7"),
        ("GPU143", "/etc/udev/rules.d/99-gpu.rules:3"),
    }


def test_what_agrees_is_no_conflict_and_is_reported() -> None:
    plan = plan_host(SPEC, hand_made().host)
    assert set(messages(plan, "GPU170")) == {
        "/etc/default/grub:4",
        "/etc/driverctl.d/0000:84:00.1",
        "/etc/modprobe.d/blacklist.conf:3",
        "/etc/modprobe.d/blacklist.conf:4",
        "/etc/modprobe.d/blacklist.conf:5",
        "/etc/modprobe.d/vfio.conf:3",
        *(f"/etc/modules:{line}" for line in (2, 3, 4, 5)),
        "/etc/udev/rules.d/99-gpu.rules:2",
    }


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


def test_the_shell_still_runs_what_is_left_of_rc_local(tmp_path: Path) -> None:
    plan = plan_host(SPEC, hand_made().host, adopt=True)
    [text] = [o.content for o in plan.operations if isinstance(o, WriteFile) and o.path == "/etc/rc.local"]
    (tmp_path / "rc.local").write_text(text.replace("sysctl -q", "echo ran"), encoding="utf-8")
    process = subprocess.run(["sh", "-e", tmp_path / "rc.local"], capture_output=True, text=True, check=True)
    assert process.stdout == "ran vm.swappiness=10\n"
    assert process.stderr == ""


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
    "line",
    [
        "for i in 0000:84:00.0; do echo $i > /sys/bus/pci/drivers/pci-stub/bind; done",
        "echo 0000:84:00.0 > /sys/bus/pci/drivers/pci-stub/bind && touch /run/done",
        "echo 0000:84:00.0 \\",
        "echo $(cat /etc/gpu) 0000:84:00.0 > /sys/bus/pci/drivers/pci-stub/bind",
        "modprobe vfio-pci ids=10de:ffffffff",
    ],
)
def test_a_line_of_a_script_that_is_more_than_a_plain_command_is_left(line: str) -> None:
    host = machine({"/etc/rc.local": f"#!/bin/sh\n{line}\n> /dev/null\n"})
    plan = plan_host(SPEC, host.host, adopt=True)
    if line.endswith("\\"):
        assert not [o for o in plan.operations if isinstance(o, WriteFile) and o.path == "/etc/rc.local"]
        return
    assert plan.refused
    assert set(messages(plan, "GPU172")) == set(messages(plan, "GPU143")) == {"/etc/rc.local:2"}


def test_devices_that_a_script_names_for_other_lines_are_reported_without_a_guess() -> None:
    """The form of many guides: whether the loop does what the plan does is for a person to see."""
    script = "/etc/initramfs-tools/scripts/init-top/bind"
    loop = "for DEV in $DEVS; do\n  echo nouveau > /sys/bus/pci/devices/$DEV/driver_override\ndone\n"
    host = machine(
        {
            script: f'#!/bin/sh\nDEVS="0000:84:00.0 0000:84:00.1"\n{loop}',
            "/etc/rc.local": "#!/bin/sh\nCARD=0000:84:00.0\nnvidia-smi -i $CARD\necho 1 > /sys/bus/pci/rescan\n",
        }
    )
    host.raw["files"][script]["mode"] = "0755"
    for adopt in (False, True):
        plan = plan_host(SPEC, host.host, adopt=adopt)
        assert set(messages(plan, "GPU143")) == {f"{script}:2"}
        assert not plan.refused
        assert not [o for o in plan.operations if isinstance(o, WriteFile) and o.path in host.host.files]


@pytest.mark.parametrize(
    ("acts", "code"),
    [
        ('ATTR{driver_override}="vfio-pci"', "GPU170"),
        ('ATTR{driver_override}="nouveau"', "GPU143"),
        ("RUN+=\"/bin/sh -c 'echo $kernel > /sys/bus/pci/drivers/nouveau/unbind'\"", "GPU143"),
        ('ATTR{power/control}="auto"', None),
    ],
)
def test_rules_of_udev_that_know_devices_by_their_ids(acts: str, code: str | None) -> None:
    path = "/etc/udev/rules.d/90-gpus.rules"
    rule = f'ACTION=="add", SUBSYSTEM=="pci", ATTR{{vendor}}=="0x10DE", ATTR{{device}}=="0x11b4", {acts}\n'
    plan = plan_host(SPEC, machine({path: rule + rule.replace("0x11b4", "0xffff")}).host)
    assert {f.code for f in plan.findings if path in f.place} == ({code} if code else set())
    assert all(f.place.endswith(f"{path}:1") for f in plan.findings if path in f.place)
    assert plan.refused is (code == "GPU143")


@pytest.mark.parametrize(
    ("ids", "agrees"),
    [
        ("10de:11b4:10de:1096,10de:e0a", True),
        ("0x10de:0x11b4,10de:0e0a:ffffffff:ffffffff:040300:ffffff", True),
        ('"10DE:11B4,10de:0e0a"', True),
        ("10de:11b4:103c,10de:0e0a", False),
        ("10de:11b4:10de:1097,10de:0e0a", False),
        ("10de:11b4,10de:0e0a:ffffffff:ffffffff:030000:ff0000", False),
        ("10de:11b4:10de:1097,10de:11b4,10de:0e0a", True),
        ("10de:11b4:zz,10de:0e0a", False),
    ],
)
def test_ids_mean_what_the_driver_reads_in_them(ids: str, agrees: bool) -> None:
    """Of two lists the last counts, so one that takes fewer boards than the plan's would leave GPUs to the host."""
    plan = plan_host(SPEC, machine({"/etc/modprobe.d/zz.conf": f"options vfio-pci ids={ids}\n"}).host)
    assert plan.refused is not agrees
    assert set(messages(plan, "GPU170" if agrees else "GPU135")) == {"/etc/modprobe.d/zz.conf:1"}


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
    "line",
    [
        "echo ffffffff ffffffff ffffffff ffffffff 030000 ffff00ff > /sys/bus/pci/drivers/pci-stub/new_id",
        "echo 0x10de 0xffffffff > /sys/bus/pci/drivers/pci-stub/new_id",
        "echo 10de 11b4 > /sys/bus/pci/drivers/pci-stub/new_id",
    ],
)
def test_a_command_that_binds_another_card_is_not_adopted(line: str) -> None:
    """An id with PCI_ANY_ID names all of the cards; the card that stays needs the line."""
    host = machine({"/etc/rc.local": f"{line}\n"})
    assert set(messages(plan_host(FIRST_CARD, host.host), "GPU143")) == {"/etc/rc.local:1"}
    [message] = messages(plan_host(FIRST_CARD, host.host, adopt=True), "GPU172")["/etc/rc.local:1"]
    assert "it also binds" in message
    assert "0000:88:00.0 (10de:11b4)" in message


def test_new_id_of_other_devices_is_left_alone() -> None:
    line = "echo 8086 ffffffff ffffffff ffffffff 020000 ffffff > /sys/bus/pci/drivers/vfio-pci/new_id\n"
    plan = plan_host(SPEC, machine({"/etc/rc.local": line}).host)
    assert not [f for f in plan.findings if "rc.local" in f.place]


def test_undo_leaves_cards_that_ids_of_any_device_bind() -> None:
    host = machine(
        {"/etc/modprobe.d/vfio.conf": "options vfio-pci ids=10de:ffffffff:ffffffff:ffffffff:030000:ff0000\n"}
    )
    for function in host.raw["pci"]:
        if function["vendor"] == "10de":
            function["driver"] = "vfio-pci"
    by_others = still_kept(host.host, elsewhere(host.host))
    assert [function.address for function in by_others] == ["0000:84:00.1", "0000:88:00.1"]  # the audio functions


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


def test_a_blacklist_that_the_cards_of_the_host_need_is_reported() -> None:
    host = machine({"/etc/modprobe.d/blacklist.conf": "blacklist nouveau\n"})
    plan = plan_host(FIRST_CARD, host.host)
    assert "0000:88:00.0" in messages(plan, "GPU173")["/etc/modprobe.d/blacklist.conf:1"][0]
    assert not plan.refused
    host_plan = plan_host(FIRST_CARD, host.host, adopt=True)
    assert "GPU173" not in codes(host_plan)


def test_a_file_that_is_not_known_to_the_byte_is_left() -> None:
    host = machine({"/etc/modprobe.d/vfio.conf": "# \ufffd\noptions vfio-pci ids=10de:11b4\n"})
    plan = plan_host(SPEC, host.host, adopt=True)
    assert plan.refused
    assert "/etc/modprobe.d/vfio.conf:2" in messages(plan, "GPU172")


def test_no_trial_where_arguments_are_taken_over() -> None:
    """The old boot would not be the old one any more."""
    plan = plan_host(SPEC, hand_made().host, adopt=True, trial=600)
    assert plan.refused
    assert "GPU229" in codes(plan)


def test_lines_for_dracut() -> None:
    path = "/etc/dracut.conf.d/vfio.conf"
    text = 'hostonly=yes\nadd_drivers+=" vfio vfio_pci vfio_iommu_type1 "\nforce_drivers+=" vfio-pci igb "\n'
    host = machine({path: text, "/etc/dracut.conf.d/off.conf": "omit_drivers+=' vfio_pci ' # why\n"})
    host.raw["initramfs_tool"] = "dracut"
    plan = plan_host(SPEC, host.host)
    assert set(messages(plan, "GPU170")) == {f"{path}:2", f"{path}:3"}
    assert set(messages(plan, "GPU140")) == {"/etc/dracut.conf.d/off.conf:1"}
    plan = plan_host(SPEC, host.host, adopt=True)
    assert not plan.refused
    assert set(messages(plan, "GPU171")) == {f"{path}:2", "/etc/dracut.conf.d/off.conf:1"}
    contents = {o.path: o.content for o in plan.operations if isinstance(o, WriteFile)}
    assert contents[path].splitlines()[::2] == text.splitlines()[::2]
    assert contents["/etc/dracut.conf.d/off.conf"].startswith(": # ")


def test_rc_local_of_red_hat_is_named_once() -> None:
    line = "echo 0000:84:00.0 > /sys/bus/pci/drivers/pci-stub/bind\n"
    plan = plan_host(SPEC, machine({"/etc/rc.local": line, "/etc/rc.d/rc.local": line}).host)
    assert set(messages(plan, "GPU143")) == {"/etc/rc.d/rc.local:1"}


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
    _, spec, host = load(Path(__file__).parent / "cases" / "systemd-boot-switched-off.yaml")
    reported = [f.message for f in plan_host(spec, host.host, adopt=True).findings if f.code == "GPU172"]
    assert len(reported) == 3
    assert all("`kernel-install add RELEASE IMAGE`" in message and "grubby" not in message for message in reported)
