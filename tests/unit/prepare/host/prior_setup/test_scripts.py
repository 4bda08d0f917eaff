"""Scripts and udev rules that bind devices: each plain command is recognized, anything else is left."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpustack.base.operations import WriteFile
from gpustack.prepare.host.plan import plan_host
from support.host_cases import SPEC
from support.prior_setups import FIRST_CARD, hand_made, machine, messages


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


_ALL_BUT_THE_CONSOLE = """\
#!/bin/sh
for i in /sys/bus/pci/devices/*/boot_vga; do
    if [ $(cat "$i") -eq 0 ]; then
        GPU="${i%/boot_vga}"
        # echo "$GPU" > /sys/bus/pci/drivers/nouveau/unbind
        echo "vfio-pci" > "$GPU/driver_override"
    fi
done
"""


@pytest.mark.parametrize(
    ("path", "text", "lines"),
    [
        ("/etc/initramfs-tools/scripts/init-top/bind", _ALL_BUT_THE_CONSOLE, {6}),
        ("/usr/local/sbin/bind", _ALL_BUT_THE_CONSOLE, {6}),
        ("/usr/lib/dracut/modules.d/95driver/bind.sh", _ALL_BUT_THE_CONSOLE, set()),  # a package's
        ("/usr/local/sbin/bind", f"{_ALL_BUT_THE_CONSOLE}echo 0000:01:00.1 ready\n", set()),  # a network card's
    ],
)
def test_a_script_that_finds_devices_itself_may_change_those_of_the_plan(path: str, text: str, lines: set[int]) -> None:
    """The script of Arch's wiki for several equal cards binds all of them, also one that the host keeps."""
    plan = plan_host(SPEC, machine({path: text}).host)
    assert not plan.refused
    said = messages(plan, "GPU143")
    assert set(said) == {f"{path}:{line}" for line in lines}
    assert all(text.startswith("this line may change devices that the plan binds: ") for (text,) in said.values())


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


def test_rc_local_of_red_hat_is_named_once() -> None:
    line = "echo 0000:84:00.0 > /sys/bus/pci/drivers/pci-stub/bind\n"
    plan = plan_host(SPEC, machine({"/etc/rc.local": line, "/etc/rc.d/rc.local": line}).host)
    assert set(messages(plan, "GPU143")) == {"/etc/rc.d/rc.local:1"}


def test_the_shell_still_runs_what_is_left_of_rc_local(tmp_path: Path) -> None:
    plan = plan_host(SPEC, hand_made().host, adopt=True)
    [text] = [o.content for o in plan.operations if isinstance(o, WriteFile) and o.path == "/etc/rc.local"]
    (tmp_path / "rc.local").write_text(text.replace("sysctl -q", "echo ran"), encoding="utf-8")
    process = subprocess.run(["sh", "-e", tmp_path / "rc.local"], capture_output=True, text=True, check=True)
    assert process.stdout == "ran vm.swappiness=10\n"
    assert process.stderr == ""
