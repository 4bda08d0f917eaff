"""A guest image is hostile: its links and programs reach nothing of the machine that prepares it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args

from gpustack.base.files import collection_dir
from gpustack.connect.playbooks.inventory import interpreter
from support.attacks import attacked, variants
from support.collection_modules import PLUGINS, imported
from support.playbook_place import environment

COLLECTION = collection_dir()
MODULE = f"{PLUGINS}modules.gpustack_image"
COMMAND = "ansible.builtin.command"
NIGHTLY = pytest.mark.skipif("GPUSTACK_ATTACKS" not in os.environ, reason="make attacks; CI runs the module alone")
NEEDS_ROOT = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("bwrap"), reason="needs root rights and bubblewrap"
)


@pytest.fixture(scope="module")
def module() -> ModuleType:
    """The module that the playbook runs."""
    return imported(MODULE)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a shell and the libraries of this machine."""
    place = tmp_path / "image"
    for directory in ("proc", "dev", "run", "etc", "bin", "boot", "sys"):
        (place / directory).mkdir(parents=True)
    copied(place, "sh", "cat", "mknod", "mount", "ls", "touch", "ln", "rm", "mv")
    return place


def copied(place: Path, *programs: str) -> None:
    """Copy programs of this machine into a root, with their libraries."""
    for program in programs:
        path = Path(shutil.which(program) or "").resolve()
        shutil.copy(path, place / "bin" / program)
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+)", listed):
            target = place / library.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)


LINKS = ("/etc/shadow", "../../../../../../etc/shadow", "/etc/../../../etc/shadow")


def link(target: str, directory: Path) -> None:
    module = imported(MODULE)
    for name in ("etc", "boot"):
        (directory / name).mkdir()
    (directory / "etc/os-release").symlink_to(target)
    (directory / "boot/vmlinuz-1").symlink_to("/vmlinuz")
    (directory / "etc/shadow").write_text('NAME="Debian GNU/Linux"\nVERSION_ID="13"\n', encoding="utf-8")
    assert module.resolved(str(directory), "/etc/os-release") == "/etc/shadow"
    assert (module.system(str(directory)), module.kernels(str(directory))) == ("Debian 13", [])


test_an_attack_fails, test_an_attack_works_without_the_check = attacked(
    variants(link, {target: target for target in LINKS}),
    {"playbooks/library/gpustack_image.py": {f"{MODULE}:resolved": lambda _root, path: path}},
)


def test_a_loop_and_a_pipe_are_errors(module: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(module.ImageError):
        module.resolved(str(tmp_path), "/loop")
    os.mkfifo(tmp_path / "etc/os-release")
    assert module.system(str(tmp_path)) == ""
    (tmp_path / "boot").symlink_to("loop")
    arguments = {"root": str(tmp_path), "policy": "/dev/null"}
    with patch_module_args(arguments), pytest.raises(SystemExit):
        module.main()
    assert "/boot: too many links" in json.loads(capsys.readouterr().out)["msg"]


def test_mount_points_that_are_links_are_refused(module: ModuleType, root: Path) -> None:
    shutil.rmtree(root / "run")
    (root / "run").symlink_to("/etc")
    with pytest.raises(module.ImageError):
        module.enter(str(root), "bwrap", {})


ATTACKS = {
    "a device of the machine": "mknod /bin/disk b 8 0",
    "a mount": "mount -t proc proc /sys",
    "the machine's root": "cat /proc/1/root/HOST/secret",
    "the kernel's settings": "read x < /proc/sys/kernel/core_pattern; echo $x > /proc/sys/kernel/core_pattern",
    "the system request key": "echo h > /proc/sysrq-trigger",
    "the machine's devices": "ls /dev/kmsg",
    "sysfs": "ls /sys/kernel",
}


@NEEDS_ROOT
@pytest.mark.parametrize("attack", list(ATTACKS))
def test_programs_of_the_image_reach_nothing(module: ModuleType, root: Path, tmp_path: Path, attack: str) -> None:
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    enter = module.enter(str(root), shutil.which("bwrap"), {})
    works = subprocess.run([*enter, "sh", "-c", "touch /etc/works"], capture_output=True, text=True, check=False)
    assert (works.returncode, (root / "etc/works").exists()) == (0, True), works.stderr
    command = ATTACKS[attack].replace("HOST", str(tmp_path).lstrip("/"))
    ran = subprocess.run([*enter, "sh", "-c", command], capture_output=True, text=True, check=False)
    assert ran.returncode != 0, ran.stdout


@NEEDS_ROOT
def test_a_program_moves_no_mount_point_for_the_next_one(module: ModuleType, root: Path, tmp_path: Path) -> None:
    """bubblewrap follows links at mount points, and the machine's root is at /oldroot while it mounts."""
    policy, outside = tmp_path / "policy", tmp_path / "outside"
    policy.touch()
    outside.mkdir()
    (outside / "policy-rc.d").touch()

    def run(command: str) -> tuple[Any, ...]:
        answer: tuple[int, str, str] = module.entered(
            str(root), shutil.which("bwrap"), str(policy), ["sh", "-c", command]
        )
        return answer

    (root / "usr/sbin").mkdir(parents=True)
    assert (
        run(f"mv /usr/sbin /usr/old && ln -s {outside} /usr/sbin && mv /etc /old && ln -s /oldroot{outside} /etc")[0]
        == 0
    )
    assert (root / "usr/sbin").is_symlink()
    assert (root / "etc").is_symlink()
    run("true")
    assert [path.name for path in outside.iterdir()] == ["policy-rc.d"]
    shutil.rmtree(root / "run")
    (root / "run").symlink_to(outside)
    with pytest.raises(module.ImageError, match="is no directory"):
        run("true")


@NEEDS_ROOT
def test_programs_share_no_namespace_session_and_variable(
    module: ModuleType, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The namespace of the network is shared: packages come from there. A session leads to the operator's terminal."""
    monkeypatch.setenv("OS_PASSWORD", "secret")
    enter = module.enter(str(root), shutil.which("bwrap"), {})
    script = "ls -l /proc/self/ns; cat /proc/self/environ; read line < /proc/self/stat; echo; echo $line"
    output = subprocess.run([*enter, "sh", "-c", script], capture_output=True, text=True, check=True).stdout
    *listed, variables, status = output.splitlines()
    inside = dict(re.findall(r"(\w+) -> (\S+)", "\n".join(listed)))
    assert {kind for kind in inside if inside[kind] == str(Path(f"/proc/self/ns/{kind}").readlink())} <= {
        *("net", "user", "cgroup", "time", "time_for_children")
    }
    assert {word.partition("=")[0] for word in variables.split("\0") if word} <= {*module.VALUES, "PWD"}
    assert status.rpartition(")")[2].split()[3] != "0"  # a session of the machine


REFUSED = {
    "the keyring of the session": (0, "exit(syscall(NUMBER, 0, -3, 0) < 0 ? 0 : 1)"),
    "the first process of the sandbox": (3, "exit(syscall(NUMBER, 0x4206, 1, 0, 0) < 0 ? 0 : 1)"),
}
"""The index of a system call, and a program that reports whether the kernel refuses KEYCTL_GET_KEYRING_ID, and
PTRACE_SEIZE."""


@NEEDS_ROOT
@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="the filter knows these")
@pytest.mark.parametrize("attacked_part", REFUSED)
def test_the_filter_refuses_what_namespaces_permit(
    module: ModuleType, root: Path, tmp_path: Path, attacked_part: str
) -> None:
    """Keyrings of the session and the user contain Kerberos tickets; whoever traces the first process can stop it."""
    copied(root, "perl")
    (tmp_path / "policy").touch()
    (root / "usr/sbin").mkdir(parents=True, exist_ok=True)
    number, script = REFUSED[attacked_part]
    script = script.replace("NUMBER", str(module.CALLS[platform.machine()][1][number]))
    plain = subprocess.run([*module.enter(str(root), "bwrap", {}), "perl", "-e", script], check=False)
    assert plain.returncode == 1  # without the filter, the attack works
    entered = module.entered(str(root), "bwrap", str(tmp_path / "policy"), ["perl", "-e", script])
    assert entered[0] == 0, entered


def answer(program: bytes, architecture: int, call: int) -> int:
    """The answer of a seccomp filter, as the kernel's interpreter finds it."""
    steps, at, loaded = list(struct.iter_unpack("=HBBI", program)), 0, 0
    while True:
        code, true, false, value = steps[at]
        if code == 0x06:
            return int(value)
        if code == 0x20:
            loaded, skip = {0: call, 4: architecture}[value], 0
        else:
            skip = true if (loaded == value if code == 0x15 else loaded >= value) else false
        at += 1 + skip


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_refuses_each_call_and_other_abis(module: ModuleType, machine: str) -> None:
    """Few kernels have the ABI x32, whose calls have bit 30."""
    architecture, calls = module.CALLS[machine]
    program, other = module.without_calls(machine), module.CALLS[{"x86_64": "aarch64"}.get(machine, "x86_64")][0]
    refused = {(architecture, call) for call in calls} | {(architecture, 1 << 30 | calls[0]), (architecture, 1 << 30)}
    refused |= {(other, 0), (0x40000003, 0)}
    assert {answer(program, *of) for of in refused} == {0x00050000 | 38}
    permitted = set(range(500)) - set(calls)
    assert {answer(program, architecture, call) for call in permitted} == {0x7FFF0000}
    assert module.without_calls("riscv64") == b""


@NEEDS_ROOT
def test_a_device_in_the_image_is_no_device(module: ModuleType, root: Path) -> None:
    os.mknod(root / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    code, output, error = module.run(
        [*module.enter(str(root), shutil.which("bwrap"), {}), "sh", "-c", "read x < /zero"]
    )
    assert (code != 0, output) == (True, ""), error


def test_output_steers_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks loop over the output of the image's programs: Ansible prints each item as it is."""
    plugin = imported(f"{PLUGINS}action.gpustack_image")
    answer = {"stdout_lines": ["/lib/x\x1b]0;owned\x07.ko"], "kernels": ["6.1\u202e"], "rc": 0}
    monkeypatch.setattr("ansible.plugins.action.normal.ActionModule.run", lambda *_: answer)
    result = plugin.ActionModule.run(object.__new__(plugin.ActionModule), None, {})
    assert result == {"stdout_lines": ["/lib/x\\x1b]0;owned\\x07.ko"], "kernels": ["6.1\\u202e"], "rc": 0}


def test_output_without_end_is_cut(module: ModuleType) -> None:
    code, output, _ = module.run(["head", "-c", str(3 * module.MOST_OUTPUT), "/dev/zero"])
    assert (code, len(output)) == (0, module.MOST_OUTPUT)


PROGRAMS = {
    "apt-get": "touch /ran; case $* in *install*) echo 'Setting up driver'; WAIT ;; esac",
    "linux-version": "touch /ran; while read -r line; do echo $line; done < /dev/null; echo 6.1",
    "tail": "read -r line; echo $line",
    "grep": "touch /ran",
    "modinfo": "touch /ran; case $* in *--field*) echo /lib/nvidia.ko ;; *) echo 'version: 1' ;; esac",
}


def play(root: Path, *arguments: str, wait: str = "") -> subprocess.Popen[str]:
    """Start ``image.yml`` on an image as the how-to prints it."""
    (root / "boot/vmlinuz-6.1").touch()
    for name, text in PROGRAMS.items():
        (root / "bin" / name).write_text(f"#!/bin/sh\n{text.replace('WAIT', wait)}\n", encoding="utf-8")
        (root / "bin" / name).chmod(0o755)
    printed = [
        "-i",
        "localhost,",
        "-c",
        "local",
        str(COLLECTION / "playbooks/image.yml"),
        "-e",
        f"gpustack_image_root={root}",
    ]
    printed += ["-e", '{"gpustack_image_packages": ["nvidia-open-kernel-dkms"]}']
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    machine = ["-e", json.dumps({"ansible_become": False, "ansible_python_interpreter": interpreter()})]
    return subprocess.Popen(
        [program, *printed, *machine, *arguments],
        env=environment(root.parent),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_check_mode_runs_no_program(module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module runs each program of the image, and none with ``--check``, or before the image is read."""
    for name in ("boot", "dev", "etc", "proc", "run", "usr/sbin"):
        (tmp_path / "image" / name).mkdir(parents=True)
    (tmp_path / "image/boot/vmlinuz-6.1").touch()
    programs: list[Any] = []
    monkeypatch.setattr(module.subprocess, "Popen", lambda *words, **_: programs.append(words))
    for argv in ([], ["apt-get", "update"]):
        arguments = {"root": str(tmp_path / "image"), "policy": "/dev/null", "argv": argv}
        with patch_module_args({**arguments, "_ansible_check_mode": True}), pytest.raises(SystemExit):
            module.main()
    assert not programs


def test_only_the_module_runs_programs_of_the_image() -> None:
    """All other tasks of the role that run a program run one of the machine, which gets the root as its argument."""
    tasks = yaml.safe_load((COLLECTION / "roles/gpustack_image/tasks/main.yml").read_text(encoding="utf-8"))
    kinds = {key for task in tasks for key in task if "." in key}
    assert {key for key in kinds if re.search("command|shell|script|raw|expect|package|apt", key)} == {COMMAND}
    started = {re.split(r"[', ]+", str(task[COMMAND]["argv"]).strip("[{' "))[0] for task in tasks if COMMAND in task}
    assert started == {"mmdebstrap", "ansible_playbook_python", "du"}


@NIGHTLY
@NEEDS_ROOT
def test_a_play_with_check_runs_no_program_of_the_image(root: Path) -> None:
    output, _ = (process := play(root, "--check")).communicate()
    assert process.returncode == 0, output
    assert not (root / "ran").exists()
    assert "nvidia-open-kernel-dkms" in output


RUN = """\
import importlib, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
module = importlib.import_module(sys.argv[1])
print(module.entered(sys.argv[2], "bwrap", "/dev/null", ["sh", "-c", ": > /waiting; while :; do :; done"]))
"""


def started(root: Path, *, by_play: bool) -> subprocess.Popen[str]:
    """A program of the image that does not end."""
    if by_play:
        return play(root, wait=": > /waiting; while :; do :; done")
    (root / "boot/vmlinuz-6.1").touch()
    command = [sys.executable, "-c", RUN, MODULE, str(root)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


@NEEDS_ROOT
@pytest.mark.parametrize(
    ("kind", "by_play"),
    [
        (signal.SIGINT, False),
        (signal.SIGTERM, False),
        (signal.SIGKILL, False),
        pytest.param(None, False, id="connection"),
        pytest.param(signal.SIGINT, True, marks=NIGHTLY),
        pytest.param(signal.SIGKILL, True, marks=NIGHTLY),
    ],
)
def test_a_signal_leaves_no_process_and_no_mount(root: Path, kind: signal.Signals | None, by_play: bool) -> None:
    """A lost connection ends nothing on the host, but nobody reads the answer of the module any more."""
    process = started(root, by_play=by_play)
    while not ((root / "waiting").exists() and _first_waits(root)):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    try:
        if kind is None:
            assert process.stdout is not None
            process.stdout.close()
            process.wait(timeout=60)
        else:
            os.killpg(process.pid, kind)
            process.communicate(timeout=60)
    finally:
        process.kill()
    deadline = time.monotonic() + 30
    while living := [place for place in Path("/proc").glob("[0-9]*/root") if _below(place, root)]:
        assert time.monotonic() < deadline, living
        time.sleep(0.05)
    assert str(root) not in Path("/proc/mounts").read_text(encoding="utf-8")


FULL = """\
import importlib, itertools, os, pathlib, shutil, subprocess, sys
module, image, options, script = importlib.import_module(sys.argv[1]), *sys.argv[2:]
root = pathlib.Path(f"{image}.full")
root.mkdir()
subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(root)], check=True)
shutil.copytree(image, root, dirs_exist_ok=True)
before = pathlib.Path("/proc/self/mounts").read_text()
try:
    if "nr_inodes" in options:
        for number in itertools.count():
            (root / f"filler{number}").touch()
    with (root / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(1 << 12))
except OSError:
    pass
code, output, error = module.entered(str(root), "bwrap", "/dev/null", ["sh", "-c", f": > /started; {script}"])
assert code != 0, output
assert "No space left on device" in error, error
assert pathlib.Path("/proc/self/mounts").read_text() == before
below = [place for place in pathlib.Path("/proc").glob("[0-9]*/root") if os.path.exists(place / "filler0")]
assert not below, below
assert not (root / "etc/resolv.conf").exists()
print((root / "started").exists())
"""


@NEEDS_ROOT
@pytest.mark.parametrize(("options", "starts"), [("size=64m", True), ("size=64m,nr_inodes=400", False)])
def test_a_full_disk_leaves_no_process_and_no_mount(root: Path, options: str, starts: bool) -> None:
    """Without a free inode, bubblewrap can't make the files on which it mounts those of the machine."""
    script = "while :; do :; done & cat /bin/sh > /file"
    command = ["unshare", "--mount", sys.executable, "-c", FULL, MODULE, str(root), options, script]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, f"{starts}\n"), ran.stderr


def _below(place: Path, root: Path) -> bool:
    """Whether a process has the image as its root."""
    try:
        return place.samefile(root)
    except OSError:  # it has ended
        return False


def _first_waits(root: Path) -> bool:
    """Whether the sandbox's first process waits for the program: it binds itself to its parent after starting it."""
    for place in Path("/proc").glob("[0-9]*/root"):
        with contextlib.suppress(OSError):  # it has ended
            if place.samefile(root) and "(bwrap) S " in place.with_name("stat").read_text(encoding="utf-8"):
                return True
    return False
