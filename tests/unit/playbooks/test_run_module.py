"""The module that runs commands: alone on the host, and truthful about who is in the way."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpustack.connect.playbooks.inventory import interpreter
from support.collection_modules import PLUGINS, imported
from support.playbook_place import Place, environment

HOLD = """\
import fcntl, os, sys, time
if sys.argv[1] == "lockf":
    fcntl.lockf(os.open(sys.argv[2], os.O_RDWR), fcntl.LOCK_EX)
else:
    fcntl.flock(os.open(sys.argv[2], os.O_RDONLY), fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(float(sys.argv[3]))
"""


def hold(kind: str, path: Path, seconds: float = 3600) -> subprocess.Popen[str]:
    """A process that has a lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, kind, str(path), str(seconds)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize(
    ("kind", "lock", "message"),
    [
        ("lockf", "var/lib/dpkg/lock-frontend", "lock-frontend is locked by process {pid} ("),
        ("lockf", "usr/lib/sysimage/rpm/.rpm.lock", ".rpm.lock is locked by process {pid} ("),
        ("flock", "boot", "another run of gpustack is still at work"),
    ],
)
def test_who_holds_a_lock_is_named_and_a_second_run_finishes(place: Place, kind: str, lock: str, message: str) -> None:
    root = place.add("talk")
    path = root / lock
    if not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    menu = (root / "boot/grub/grub.cfg").read_bytes()
    with hold(kind, path) as holder:
        run = place.play("prepare", gpustack_reboot=True, gpustack_lock_timeout=0)
        holder.kill()
    assert run.code == 2
    assert message.format(pid=holder.pid) in run.output
    assert "run the playbook again" in run.output
    assert (root / "boot/grub/grub.cfg").read_bytes() == menu
    run = place.play("prepare", gpustack_reboot=True, gpustack_lock_timeout=0)
    assert run.code == 0, run.output
    assert "talk: ready," in run.output


def test_it_waits_for_a_lock(place: Place) -> None:
    root = place.add("talk")
    with hold("flock", root / "boot", seconds=6) as holder:
        run = place.play("prepare", gpustack_reboot=True, gpustack_lock_timeout=120)
        assert holder.wait(60) == 0
    assert run.code == 0, run.output


def test_the_command_keeps_the_lock_when_the_module_is_gone(tmp_path: Path) -> None:
    (tmp_path / "boot").mkdir()
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    packages = tmp_path / "var/lib/dpkg/lock-frontend"
    packages.touch()
    on, off = tmp_path / "on", tmp_path / "off"
    script = (
        # ansible-core 2.21 ends the session of a local connection; over SSH, the command has a session of its own.
        "import os, signal, time; os.setsid(); os.kill(os.getppid(), signal.SIGKILL); "
        f"open({str(on)!r}, 'w'); [time.sleep(0.1) for _ in range(6000) if not os.path.exists({str(off)!r})]"
    )
    argv = [str(Path(sys.executable).with_name("ansible")), "localhost", "-i", "localhost,", "-c", "local"]
    argv += ["-e", f"ansible_python_interpreter={interpreter()}"]
    argv += [
        "-m",
        "nova_gpustack.passthrough.gpustack_run",
        "-a",
        f'{{"argv": ["{sys.executable}", "-c", "{script}"], "root": "{tmp_path}"}}',
    ]
    subprocess.run(argv, cwd=tmp_path, env=environment(tmp_path), capture_output=True, check=False)
    deadline = time.monotonic() + 120
    while not on.exists():  # the command is no child of Ansible any more
        assert time.monotonic() < deadline
        time.sleep(0.05)
    boot_lock = os.open(tmp_path / "boot", os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(boot_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    package_lock = os.open(packages, os.O_RDWR)
    fcntl.lockf(package_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # this one is not inherited
    off.touch()
    fcntl.flock(boot_lock, fcntl.LOCK_EX)  # comes when the command has ended
    os.close(boot_lock)
    os.close(package_lock)


def test_the_menu_is_replaced_only_if_it_is_as_predicted(place: Place) -> None:
    """The first generation shows a change that the configuration does not: then nothing is written."""
    root = place.add("talk")
    path = root / "boot/grub/grub.cfg"
    menu = path.read_text()
    # 10_linux writes the root device itself: nothing but a generation shows that this menu is not its own.
    running = root / "proc/cmdline"
    for file in (path, running):
        file.write_text(file.read_text().replace(" root=UUID=", " root=/dev/mapper/x-UUID="))
    run = place.play("prepare", gpustack_reboot=True)
    assert run.code == 2
    assert "the new menu is not as predicted, and the present one stays" in run.output
    assert "- root=/dev/mapper/x-UUID=" in run.output
    assert not (root / "etc/default/grub.d/90-gpustack.cfg").exists()
    assert path.read_text() == menu.replace(" root=UUID=", " root=/dev/mapper/x-UUID=")
    assert sorted(file.name for file in path.parent.iterdir()) == ["grub.cfg", "grubenv"]
    for file in (path, running):
        file.write_text(file.read_text().replace(" root=/dev/mapper/x-UUID=", " root=UUID="))
    assert place.play("prepare", gpustack_reboot=True).code == 0
    assert sorted(file.name for file in path.parent.iterdir()) == ["grub.cfg", "grubenv"]
    assert "intel_iommu=on" in path.read_text()


def menu(root: Path) -> Any:
    """The menu of a root, as the module handles it."""
    module = imported(f"{PLUGINS}modules.gpustack_run")
    return module.Menu(str(root), {"path": "/boot/grub/grub.cfg"})


def test_a_root_whose_boot_directory_is_elsewhere_is_refused(tmp_path: Path) -> None:
    """In a chroot, the command would write another file than the one that the module replaces."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "real").mkdir(parents=True)
    (outside / "grub").mkdir(parents=True)
    (root / "boot").symlink_to(outside)
    with pytest.raises(ValueError, match="leads out of"):
        menu(root)
    (root / "boot").unlink()
    (root / "boot").symlink_to("real")
    menu(root)


def test_a_menu_is_restored_without_following_a_link(tmp_path: Path) -> None:
    path, outside = tmp_path / "root/boot/grub/grub.cfg", tmp_path / "outside"
    path.parent.mkdir(parents=True)
    outside.write_text("kept", encoding="utf-8")
    path.write_text("menu", encoding="utf-8")
    taken = menu(tmp_path / "root")
    path.write_text("changed by the command", encoding="utf-8")
    path.with_name("grub.cfg.gpustack").symlink_to(outside)
    assert "it is restored" in taken.finish(True)
    assert path.read_text(encoding="utf-8") == "menu"
    assert not path.is_symlink()
    assert outside.read_text(encoding="utf-8") == "kept"


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_restored_menu_keeps_its_mode(mode: int, tmp_path: Path) -> None:
    """It may have the hash of a password."""
    path = tmp_path / "boot/grub/grub.cfg"
    path.parent.mkdir(parents=True)
    path.write_text("password_pbkdf2 root grub.pbkdf2.sha512.1", encoding="utf-8")
    path.chmod(mode)
    taken = menu(tmp_path)
    path.unlink()
    path.write_text("changed by the command", encoding="utf-8")
    assert "it is restored" in taken.finish(True)
    assert path.stat().st_mode & 0o777 == mode
