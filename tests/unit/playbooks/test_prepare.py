"""prepare.yml, run for real on example hosts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gpustack.hosts.facts.collector import collect
from gpustack.prepare.host.own_files import GRUB, HOOK, JOURNAL, MODPROBE, MODULES_LOAD
from gpustack.prepare.plugin_api import plan
from support.playbook_place import SPEC, Place, drivers, tree

OWNED = (GRUB, MODPROBE, HOOK, MODULES_LOAD)


def written(root: Path) -> set[str]:
    """Those of gpustack's files that are there."""
    return {path for path in OWNED if (root / path.lstrip("/")).exists()}


def test_check_shows_everything_and_writes_nothing(place: Place) -> None:
    root = place.add("talk")
    before = tree(root)
    planned = plan(str(place.path / "gpustack.yaml"), collect(str(root)), "talk")
    run = place.play("prepare", "--check", "--diff")
    assert run.code == 0, run.output
    assert tree(root) == before
    assert planned["text"] in run.output
    for path in OWNED:
        assert f"+++ after: {path} (mode 0" in run.output
    assert '+GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT intel_iommu=on iommu=pt"' in run.output
    assert "would run: " in run.output
    assert "update-initramfs -u -k 6.1.0-37-amd64" in run.output
    assert "talk would need a reboot" in run.output
    assert run.count("talk", "changed") == 2


def test_a_prepared_host_is_ready_and_stays_as_it_is(prepared_place: Place) -> None:
    root = prepared_place.add("talk")
    assert drivers(root) == {"vfio-pci"}
    assert written(root) == set(OWNED)
    assert (root / HOOK.lstrip("/")).stat().st_mode & 0o777 == 0o755
    before = tree(root)
    run = prepared_place.play("prepare", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert run.count("talk", "changed") == 0
    assert "talk: nothing to do" in run.output
    assert tree(root) == before


def test_a_host_whose_plan_refuses_is_left_alone_and_the_others_go_on(place: Place) -> None:
    shared, nvswitch, epyc = place.add("shared"), place.add("nvswitch"), place.add("epyc")
    place.add("talk", "talk-gone", gpustack_root=str(place.path / "nowhere"))
    before = tree(shared), tree(nvswitch)
    run = place.play("prepare")
    assert run.code == 2
    assert (tree(shared), tree(nvswitch)) == before
    assert "0000:66:00.0 (network controller, driver igb, interface enp102s0 (up))" in run.output
    assert "this host has 4 NVSwitch functions" in run.output
    assert "GPU013 shared 0000:65:00.0" in run.fatal("shared")
    assert "GPU118 nvswitch" in run.fatal("nvswitch")
    assert "not the absolute path of a directory" in run.fatal("talk-gone")
    assert run.count("epyc", "failed") == 0
    assert written(epyc) == set(OWNED)


NOBODY = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_ssh_common_args": "-F none"}


@pytest.mark.parametrize("playbook", ["prepare", "undo"])
def test_a_host_that_is_lost_on_the_way_ends_the_run(place: Place, playbook: str) -> None:
    _, _, last = (place.add("talk", name) for name in ("talk1", "talk2", "talk3"))
    if playbook == "undo":
        assert place.play("prepare").code == 0
    before = tree(last)
    place.variables["talk1"] |= NOBODY
    place.variables["talk1"]["ansible_connection"] = "{{ 'ssh' if gpustack_planned is defined else 'local' }}"
    run = place.play(playbook, gpustack_serial=2)
    assert run.code != 0
    if playbook == "prepare":
        assert run.count("talk1", "unreachable") == 1
        assert "talk1: unreachable since gpustack changed the host" in run.fatal("talk3")
    else:  # an undo generates the menu first, and changes nothing before that
        assert "The connection to talk1 broke while 'update-grub' ran" in run.output.replace("\\'", "'")
    assert run.count("talk2", "failed") == 0
    assert tree(last) == before


def test_a_host_that_was_never_there_ends_no_run(place: Place) -> None:
    place.add("talk", "talk1", ansible_connection="ssh", **NOBODY)
    _, last = place.add("talk", "talk2"), place.add("talk", "talk3")
    for playbook, expected in (("prepare", set(OWNED)), ("undo", set())):
        run = place.play(playbook, gpustack_serial=2)
        assert run.count("talk1", "unreachable") == 1
        assert run.count("talk3", "failed") == 0
        assert written(last) == expected


def test_nvswitches_go_along_when_the_spec_says_so(place: Place) -> None:
    place.spec(SPEC + "options: {nvswitch: full}\n")
    root = place.add("nvswitch")
    run = place.play("prepare", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert drivers(root) == {"vfio-pci"}


def test_without_leave_nothing_is_rebooted(place: Place) -> None:
    root = place.add("talk")
    run = place.play("prepare")
    assert run.code == 0, run.output
    assert "talk needs a reboot before its GPUs are available for passthrough" in run.output
    assert "are on nouveau instead of vfio-pci" in run.output
    assert "gpustack_reboot=true" in run.output
    assert ": ready," not in run.output
    assert drivers(root) == {"nouveau", "snd_hda_intel"}
    repeat = place.play("prepare", gpustack_reboot=True)
    assert repeat.count("talk", "changed") == 1
    assert drivers(root) == {"vfio-pci"}


@pytest.mark.parametrize("crash", ["after the files", "between the commands"])
def test_a_run_that_was_interrupted_is_finished_by_the_next(place: Place, crash: str) -> None:
    root = place.add("talk")
    if crash == "after the files":
        first = place.play("prepare", "--tags", "files", gpustack_reboot=True)
    else:
        # The first generation of the menu, before any file is written, succeeds.
        fails = f"'update-grub' in sys.argv and os.path.exists({str(root) + GRUB!r})"
        script = f"import os, subprocess, sys; sys.exit({fails} or subprocess.call(sys.argv[1:]))"
        broken = [sys.executable, "-c", script, *place.variables["talk"]["gpustack_command_prefix"]]
        first = place.play("prepare", gpustack_reboot=True, gpustack_command_prefix=broken)
        assert first.count("talk", "failed") == 1
    assert "intel_iommu" not in (root / "boot/grub/grub.cfg").read_text(encoding="utf-8")
    assert written(root) == set(OWNED)
    assert drivers(root) == {"nouveau", "snd_hda_intel"}
    second = place.play("prepare", gpustack_reboot=True)
    assert second.code == 0, second.output
    assert "talk: ready," in second.output
    assert drivers(root) == {"vfio-pci"}


FAILURES = {
    "talk-full": ("cp: error writing '/boot/initrd.img.new': No space left on device", "A disk is full"),
    "talk-readonly": ("mkdir: cannot create directory: Read-only file system", "A file system is read-only"),
    "talk-locked": ("E: Could not get lock /var/lib/dpkg/lock-frontend", "Another process holds a lock"),
    "talk-hook": ("E: hook has failed", "Run the command on the host"),
}
"""What a command prints when it fails, and the hint; each on a host of its own."""


def test_a_command_that_fails_is_the_last_and_the_message_says_what_to_do(place: Place) -> None:
    fails = "sys.argv[1] if 'update-initramfs' in sys.argv else subprocess.call(sys.argv[2:])"
    script = f"import subprocess, sys; sys.exit({fails})"
    menus = {}
    for name, (printed, _) in FAILURES.items():
        menus[name] = place.add("talk", name) / "boot/grub/grub.cfg"
        prefix = place.variables[name]["gpustack_command_prefix"]
        place.variables[name]["gpustack_command_prefix"] = [sys.executable, "-c", script, printed, *prefix]
    before = {name: menu.read_text(encoding="utf-8") for name, menu in menus.items()}
    run = place.play("prepare", gpustack_reboot=True, gpustack_serial=len(FAILURES))
    assert run.code == 2
    for name, (printed, hint) in FAILURES.items():
        assert run.count(name, "failed") == 1
        messages = "\n".join(line for line in run.output.splitlines() if f"[{name}]" in line)
        assert printed in messages, run.output
        assert hint in messages, run.output
        assert "run the playbook again" in messages
        assert menus[name].read_text(encoding="utf-8") == before[name]
    # The menu is generated beside the present one before anything is written; the initramfs is next.
    assert run.output.count("TASK [nova_gpustack.passthrough.gpustack : Run a command]") == 2


def test_a_failure_stops_before_the_next_hosts(place: Place) -> None:
    place.add("talk", "talk-a", gpustack_command_prefix=[sys.executable, "-c", "raise SystemExit(1)"])
    roots = [place.add("talk", name) for name in ("talk-b", "talk-c")]
    before = [tree(root) for root in roots]
    run = place.play("prepare")
    assert run.code == 2
    assert [tree(root) for root in roots] == before


def test_below_another_root_commands_without_a_prefix_are_only_shown(place: Place) -> None:
    root = place.add("talk", gpustack_command_prefix=[], gpustack_reboot_command=[])
    before = collect(str(root))["kernel"]
    run = place.play("prepare", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert written(root) == set(OWNED)
    assert '"msg": "run yourself: update-grub"' in run.output
    assert f"Boot the system in {root}, then run verify.yml." in run.output
    assert collect(str(root))["kernel"] == before
    repeat = place.play("prepare", gpustack_reboot=True)
    assert repeat.count("talk", "changed") == 0
    run = place.play("undo", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert '"msg": "run yourself: update-grub"' in run.output
    assert written(root) == set()
    assert (root / JOURNAL.lstrip("/")).exists()  # until the commands of the undo have run


def test_nothing_is_rebooted_while_commands_are_only_shown(place: Place) -> None:
    root = place.add("talk", gpustack_command_prefix=[])
    before = collect(str(root))["kernel"]
    run = place.play("prepare", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert '"msg": "run yourself: update-grub"' in run.output
    assert f"Boot the system in {root}, then run verify.yml." in run.output
    assert collect(str(root))["kernel"] == before


def test_a_prefix_alone_reboots_nothing(place: Place) -> None:
    root = place.add("talk", gpustack_reboot_command=[])
    before = collect(str(root))["kernel"]
    run = place.play("prepare", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert collect(str(root))["kernel"] == before
    assert f"Boot the system in {root}, then run verify.yml." in run.output


def test_a_file_that_is_no_longer_wanted_is_removed(prepared_place: Place) -> None:
    root = prepared_place.add("talk")
    stale = root / "etc/default/grub.d/90-gpustack.cfg"
    prepared_place.spec(SPEC + "options: {iommu_pt: false}\n")
    defaults = 'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="quiet splash"\nGRUB_CMDLINE_LINUX="intel_iommu=on"\n'
    (root / "etc/default/grub").write_text(defaults, encoding="utf-8")
    run = prepared_place.play("prepare", "--diff", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert f"--- before: {GRUB} (mode 0644)" in run.output
    assert "+++ after: /dev/null" in run.output
    assert not stale.exists()


def test_rebooting_the_machine_that_ansible_runs_on_is_refused(place: Place) -> None:
    place.variables["localhost"] = {}
    run = place.play("prepare", gpustack_reboot=True)
    assert run.code == 2
    assert "the reboot would end Ansible" in run.output
    assert "Read the host" not in run.output


def test_unusable_input_is_reported_before_anything_is_written(place: Place) -> None:
    place.spec("version: 1\nmodels: [\n", "unfinished.yaml")
    place.spec('version: 2\nmodels: {}\nhosts: {"*": [k4200]}\n', "newer.yaml")
    bad: dict[str, tuple[dict[str, str], str]] = {
        "missing": ({"gpustack_spec": "no-such.yaml"}, f"{place.path}/no-such.yaml"),
        "unfinished": ({"gpustack_spec": "unfinished.yaml"}, f"{place.path}/unfinished.yaml"),
        "newer": ({"gpustack_spec": "newer.yaml"}, "version"),
        "semicolon": ({"gpustack_hostname": "talk; touch pwned"}, "hostname"),
        "dollar": ({"gpustack_hostname": "talk$(touch pwned)"}, "hostname"),
        "dash": ({"gpustack_hostname": "-talk"}, "hostname"),
        "reversed": ({"gpustack_hostname": "talk\u202egp"}, "hostname"),
        "nowhere": ({"gpustack_root": str(place.path / "nowhere")}, "not the absolute path of a directory"),
        "relative": ({"gpustack_root": "roots/relative"}, "not the absolute path of a directory"),
    }
    roots = [place.add("talk", name, **variables) for name, (variables, _) in bad.items()]
    roots.append(place.add("talk", "unknown", gpustack_hostname="elsewhere"))  # not in the spec: left out
    before = [tree(root) for root in roots]
    run = place.play("prepare", gpustack_reboot=True)
    assert run.code == 2
    for name, (_, message) in bad.items():
        assert message in run.fatal(name)
        assert run.count(name, "failed") == 1
    assert run.count("unknown", "failed") == 0
    assert "Traceback" not in run.output
    assert [tree(root) for root in roots] == before
    assert not list(place.path.rglob("pwned"))


def test_the_spec_must_be_given(place: Place) -> None:
    place.add("talk", gpustack_spec=None)
    run = place.play("prepare")
    assert run.code == 2
    assert "gpustack_spec" in run.output


def test_what_a_host_says_is_not_evaluated(place: Place) -> None:
    root = place.add("talk")
    evil = "{{ lookup('ansible.builtin.pipe', 'touch pwned') }}"
    (root / "etc/modprobe.d/evil.conf").write_text(f"# vfio {evil}\nblacklist nouveau\n", encoding="utf-8")
    (root / "sys/class/dmi/id/product_name").write_text(f"{evil}\n", encoding="utf-8")
    machine = root / ".example/machine.json"
    machine.write_text(machine.read_text(encoding="utf-8").replace("SYS-1028GR-TR", evil), encoding="utf-8")
    run = place.play("prepare", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert not list(place.path.rglob("pwned"))
    assert not Path("pwned").exists()


def test_a_limit_a_number_of_hosts_and_a_spec_each_can_be_given(place: Place) -> None:
    (place.path / "specs").mkdir()
    (place.path / "gpustack.yaml").rename(place.path / "specs/own.yaml")
    specs = {"talk-a": "specs/own.yaml", "talk-b": "no-such.yaml", "talk-c": str(place.path / "specs/own.yaml")}
    roots = [place.add("talk", name, gpustack_spec=spec) for name, spec in specs.items()]
    run = place.play("prepare", "--limit", "talk-a,talk-c", "-e", "gpustack_serial=50%")
    assert run.code == 0, run.output
    assert [bool(written(root)) for root in roots] == [True, False, True]


def test_how_many_of_a_batch_may_fail_before_the_rest_is_left_alone_can_be_said(place: Place) -> None:
    place.add("talk", "talk-a", gpustack_command_prefix=["/bin/false"])
    second, third = (place.add("talk", name) for name in ("talk-b", "talk-c"))
    assert place.play("prepare", gpustack_serial=2).code == 2
    assert not written(third)
    run = place.play("prepare", gpustack_serial=2, gpustack_max_fail_percentage=50, gpustack_reboot=True)
    assert run.code == 2
    assert drivers(second) == drivers(third) == {"vfio-pci"}


def test_a_reboot_that_fails_keeps_no_other_host_of_its_batch_from_its_verification(place: Place) -> None:
    first = place.add("talk", "talk-a", gpustack_reboot_command=["/bin/false"])
    second, third = (place.add("talk", name) for name in ("talk-b", "talk-c"))
    run = place.play("prepare", gpustack_serial=2, gpustack_reboot=True)
    assert run.code == 2
    assert "talk-a failed at 'Reboot the machine that the root belongs to': see the report above." in run.output
    assert "talk-b: ready," in run.output
    assert [run.count(name, "failed") for name in ("talk-a", "talk-b", "talk-c")] == [1, 0, 0]
    assert [drivers(root) == {"vfio-pci"} for root in (first, second)] == [False, True]
    assert not written(third)


def test_any_errors_fatal_keeps_no_other_host_from_its_verification(place: Place) -> None:
    place.add("talk", "talk-a", gpustack_reboot_command=["/bin/false"])
    place.add("talk", "talk-b")
    place.environment["ANSIBLE_ANY_ERRORS_FATAL"] = "true"
    run = place.play("prepare", gpustack_serial=2, gpustack_reboot=True)
    assert run.code == 2
    assert "talk-b: ready," in run.output


def test_without_the_tag_reboot_all_but_the_reboot_is_done(place: Place) -> None:
    root = place.add("talk")
    run = place.play("prepare", "--skip-tags", "reboot", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert run.count("talk", "changed") == 4  # the files and three commands
    assert drivers(root) == {"nouveau", "snd_hda_intel"}
    run = place.play("prepare", "--tags", "reboot", gpustack_reboot=True)
    assert run.code == 0, run.output
    assert run.count("talk", "changed") == 1
    assert drivers(root) == {"vfio-pci"}


def test_no_host_is_rebooted_while_tags_leave_out_commands(place: Place) -> None:
    root = place.add("talk")
    run = place.play("prepare", "--skip-tags", "commands", gpustack_reboot=True)
    assert run.code == 2
    assert "talk is not rebooted: this run leaves out files or commands of its plan" in run.fatal("talk")
    assert drivers(root) == {"nouveau", "snd_hda_intel"}


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("gpustack_serial", 0.5, "gpustack_serial is 0.5, so Ansible would change all hosts at once"),
        ("gpustack_serial", "[1, -1]", "gpustack_serial is [1, -1], so Ansible would change all hosts at once"),
        ("gpustack_serial", "[]", "gpustack_serial is [], so Ansible would change all hosts at once"),
        ("gpustack_serial", "abc", "gpustack_serial is abc, expected a number of hosts, a percentage"),
        ("gpustack_serial", "[1, 4", "gpustack_serial is [1, 4, expected a number of hosts, a percentage"),
        ("gpustack_serial", {"first": 1}, "gpustack_serial is {'first': 1}, expected a number of hosts"),
        ("gpustack_max_fail_percentage", "-5%", "gpustack_max_fail_percentage is -5%, expected 0 to 100"),
        ("gpustack_max_fail_percentage", "few", "gpustack_max_fail_percentage is few, expected 0 to 100"),
        ("gpustack_command_prefix", "chroot '/mnt/a b'", "gpustack_command_prefix is a text, expected a list of words"),
        ("gpustack_command_prefix", '["chroot", "/mnt"]', 'words: [\\"chroot\\", \\"/mnt\\"]'),
        (
            "gpustack_reboot_command",
            "virsh reset 'gpu01",
            "gpustack_reboot_command is a text, expected a list of words",
        ),
    ],
)
def test_values_are_checked_before_a_change(place: Place, variable: str, value: object, message: str) -> None:
    root = place.add("talk")
    before = tree(root)
    run = place.play("prepare", **{variable: value})
    assert run.code == 2
    assert message in run.fatal("talk")
    assert tree(root) == before


def test_numbers_of_hosts_in_the_inventory_are_refused(place: Place) -> None:
    """Ansible does not read them there, and would change four hosts at a time."""
    root = place.add("talk", gpustack_serial=1)
    before = tree(root)
    run = place.play("prepare")
    assert run.code == 2
    assert "gpustack_serial: the play does not read the inventory's value; set it with -e" in run.fatal("talk")
    assert tree(root) == before
    run = place.play("prepare", "-e", "gpustack_serial=[1,4]", "-e", "gpustack_max_fail_percentage=30%")
    assert run.code == 0, run.output


def test_each_run_of_the_role_in_a_play_has_its_own_plan(prepared_place: Place) -> None:
    root = prepared_place.add("talk")
    prepared_place.spec(SPEC + "options: {iommu_pt: false}\n", "other.yaml")
    role = "ansible.builtin.include_role: {name: nova_gpustack.passthrough.gpustack, tasks_from: %s}"
    tasks = "".join(f"    - {role % entry}\n" for entry in ("prepare", "undo", "undo", "prepare", "prepare"))
    play = f"- hosts: all\n  gather_facts: false\n  tasks:\n{tasks}      vars: {{gpustack_spec: other.yaml}}\n"
    (prepared_place.path / "own.yml").write_text(play, encoding="utf-8")
    run = prepared_place.play(str(prepared_place.path / "own"))
    assert run.code == 0, run.output
    assert written(root) == set(OWNED)
    assert "iommu=pt" not in (root / GRUB.lstrip("/")).read_text(encoding="utf-8")


def test_an_error_is_reported_without_its_causes(place: Place) -> None:
    place.add("talk")
    run = place.play("plan", gpustack_spec="nowhere.yaml")
    assert run.fatal("talk").count("No such file or directory") == 1
    assert "[Errno" not in run.output


def test_the_report_of_a_failed_command_ends_with_its_errors(place: Place) -> None:
    place.add("talk")
    long = "import sys; print('o' * 2000); sys.exit('E: the cause')"
    run = place.play("prepare", gpustack_command_prefix=[sys.executable, "-c", long])
    assert "nothing after it was done: [...] ooo" in run.output
    assert "E: the cause. Run the command on the host" in run.output
