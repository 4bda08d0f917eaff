"""A guest image is hostile: its links and programs reach nothing of the machine that prepares it."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from gpustack.base.files import share_dir

PLAYBOOKS = share_dir("playbooks")


@pytest.fixture(scope="module")
def module() -> ModuleType:
    """The module that the playbook runs."""
    spec = importlib.util.spec_from_file_location("gpustack_image", PLAYBOOKS / "library/gpustack_image.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a shell and the libraries of this machine."""
    place = tmp_path / "image"
    for directory in ("proc", "dev", "run", "etc", "bin", "boot", "sys"):
        (place / directory).mkdir(parents=True)
    for program in ("sh", "cat", "mknod", "mount", "ls", "touch"):
        path = Path(shutil.which(program) or "").resolve()
        shutil.copy(path, place / "bin" / program)
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+)", listed):
            target = place / library.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)
    return place


@pytest.mark.parametrize("link", ["/etc/shadow", "../../../../../../etc/shadow", "/etc/../../../etc/shadow"])
def test_links_are_resolved_below_the_root(module: ModuleType, tmp_path: Path, link: str) -> None:
    for name in ("etc", "boot"):
        (tmp_path / name).mkdir()
    (tmp_path / "etc/os-release").symlink_to(link)
    (tmp_path / "boot/vmlinuz-1").symlink_to("/vmlinuz")
    (tmp_path / "etc/shadow").write_text('NAME="Debian GNU/Linux"\nVERSION_ID="13"\n', encoding="utf-8")
    assert module.resolved(str(tmp_path), "/etc/os-release") == "/etc/shadow"
    assert (module.system(str(tmp_path)), module.kernels(str(tmp_path))) == ("Debian 13", [])


def test_a_loop_and_a_pipe_are_errors(module: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(module.ImageError):
        module.resolved(str(tmp_path), "/loop")
    os.mkfifo(tmp_path / "etc/os-release")
    assert module.system(str(tmp_path)) == ""


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


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("bwrap"), reason="needs root rights and bubblewrap")
@pytest.mark.parametrize("attack", list(ATTACKS))
def test_programs_of_the_image_reach_nothing(module: ModuleType, root: Path, tmp_path: Path, attack: str) -> None:
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    enter = module.enter(str(root), shutil.which("bwrap"), {})
    works = subprocess.run([*enter, "sh", "-c", "touch /etc/works"], capture_output=True, text=True, check=False)
    assert (works.returncode, (root / "etc/works").exists()) == (0, True), works.stderr
    command = ATTACKS[attack].replace("HOST", str(tmp_path).lstrip("/"))
    ran = subprocess.run([*enter, "sh", "-c", command], capture_output=True, text=True, check=False)
    assert ran.returncode != 0, ran.stdout


def test_check_mode_runs_no_program_of_the_image() -> None:
    text = (PLAYBOOKS / "roles/gpustack_image/tasks/main.yml").read_text(encoding="utf-8")
    for task in text.split("- name: ")[1:]:
        if "gpustack_image_chroot" in task or "gpustack_image_apt" in task:
            assert "not ansible_check_mode" in task, task
            assert "check_mode: false" not in task, task
