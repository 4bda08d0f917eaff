"""What gpustack writes is understood by the tools that read it: the shell, modprobe and initramfs-tools' hook."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpustack.base.operations import WriteFile
from gpustack.hosts.facts.collector import collect
from gpustack.linux.grub import LINUX_DEFAULT, read_defaults
from gpustack.prepare.host.desired import desire
from gpustack.prepare.host.own_files import DRACUT, DRACUT_MODULE, DRACUT_SCRIPT, GRUB, HOOK, MODPROBE, MODULES_LOAD
from gpustack.prepare.host.plan import plan_host
from support.host_cases import load

CASES = Path(__file__).parent / "cases"
LOADER_ENTRY = Path("/usr/lib/kernel/install.d/90-loaderentry.install")


def files_of(case: str) -> dict[str, str]:
    _, spec, machine = load(CASES / f"{case}.yaml")
    return {path: file.content for path, file in desire(spec, machine.host).files.items()}


@pytest.mark.parametrize("before", ["quiet splash", "", 'x="a b"', "$HOME"])
def test_the_shell_adds_the_arguments_to_what_is_there(before: str, tmp_path: Path) -> None:
    drop_in = files_of("first-run")[GRUB]
    (tmp_path / "grub").write_text(f"GRUB_CMDLINE_LINUX_DEFAULT='{before}'\n", encoding="utf-8")
    (tmp_path / "drop-in").write_text(drop_in, encoding="utf-8")
    script = f'set -e; . {tmp_path}/grub; . {tmp_path}/drop-in; printf %s "$GRUB_CMDLINE_LINUX_DEFAULT"'
    process = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert process == f"{before} intel_iommu=on iommu=pt"
    evaluated = read_defaults({"/etc/default/grub": (tmp_path / "grub").read_text(), GRUB: drop_in})
    assert evaluated.text(LINUX_DEFAULT) == process


@pytest.mark.skipif(shutil.which("modprobe") is None, reason="kmod is not installed")
@pytest.mark.parametrize("case", ["first-run", "pci-stub", "nvswitch-isolated"])
def test_modprobe_takes_every_line(case: str, tmp_path: Path) -> None:
    content = files_of(case)[MODPROBE]
    (tmp_path / "gpustack.conf").write_text(content, encoding="utf-8")
    ran = subprocess.run(
        ["modprobe", "--showconfig", f"--config={tmp_path}", "--set-version=0"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stderr == ""
    configured = {line.replace("-", "_") for line in ran.stdout.splitlines()}
    for line in content.splitlines():
        if line and not line.startswith("#"):
            assert line.replace("-", "_") in configured


def run_hook(directory: Path, answers: dict[str, str]) -> list[str]:
    """Run the hook with a modprobe that answers so, and tell which modules it wants loaded."""
    hook = files_of("first-run")[HOOK]
    functions = directory / "hook-functions"
    functions.write_text('force_load() { echo "$@" >> "$DESTDIR/modules"; }\n', encoding="utf-8")
    lines = "".join(f"{name}) printf '{output}' ;;\n" for name, output in answers.items())
    modprobe = directory / "modprobe"
    modprobe.write_text(
        f'#!/bin/sh\n[ "$1" = --set-version=6.1.0-37-amd64 ] || exit 9\ncase "$5" in\n{lines}*) exit 1 ;;\nesac\n',
        encoding="utf-8",
    )
    modprobe.chmod(0o755)
    (directory / "modules").unlink(missing_ok=True)
    script = directory / "hook"
    script.write_text(
        hook.replace("/usr/share/initramfs-tools/hook-functions", str(functions)).replace(
            "/sbin/modprobe", str(modprobe)
        ),
        encoding="utf-8",
    )
    environment = {"PATH": "/usr/bin:/bin", "version": "6.1.0-37-amd64", "DESTDIR": str(directory)}
    subprocess.run(["sh", "-e", str(script)], env=environment, check=True, capture_output=True)
    loaded = directory / "modules"
    return loaded.read_text(encoding="utf-8").split() if loaded.exists() else []


def test_the_hook_loads_what_the_kernel_has_as_modules(tmp_path: Path) -> None:
    module = "insmod /lib/modules/6.1.0-37-amd64/kernel/vfio.ko\\ninsmod /lib/modules/6.1.0-37-amd64/kernel/{}.ko \\n"
    answers = {name: module.format(name) for name in ("vfio_pci", "vfio_iommu_type1")}
    assert run_hook(tmp_path, answers) == ["vfio_pci", "vfio_iommu_type1"]
    assert run_hook(tmp_path, {**answers, "vfio_iommu_type1": "builtin vfio_iommu_type1\\n"}) == ["vfio_pci"]
    assert run_hook(tmp_path, {}) == []


def test_the_hook_answers_what_it_depends_on(tmp_path: Path) -> None:
    (tmp_path / "hook").write_text(files_of("first-run")[HOOK], encoding="utf-8")
    ran = subprocess.run(["sh", str(tmp_path / "hook"), "prereqs"], capture_output=True, text=True, check=True)
    assert ran.stdout == "\n"


def test_modules_load_d_holds_names_and_comments_only() -> None:
    lines = files_of("first-run")[MODULES_LOAD].splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["vfio_pci", "vfio_iommu_type1"]


@pytest.mark.skipif(not LOADER_ENTRY.exists(), reason="systemd's kernel-install is not installed")
def test_kernel_install_makes_entries_of_what_was_written(tmp_path: Path) -> None:
    """Its own part of kernel-install reads the file and writes the entry; the collector reads that."""
    _, spec, machine = load(CASES / "systemd-boot-cmdline.yaml")
    plan = plan_host(spec, machine.host)
    contents = {op.path: op.content for op in plan.operations if isinstance(op, WriteFile)}
    token, release = "f834400e090bec4b1157042a6b015662", "6.1.0-37-amd64"
    boot, configuration = tmp_path / "boot/efi", tmp_path / "etc/kernel"
    for directory in (configuration, tmp_path / "staging", boot / token / release, boot / "loader/entries"):
        directory.mkdir(parents=True)
    (configuration / "cmdline").write_text(contents["/etc/kernel/cmdline"], encoding="utf-8")
    image = tmp_path / "vmlinuz"
    image.touch()
    environment = {
        "PATH": "/usr/bin:/bin",
        "KERNEL_INSTALL_CONF_ROOT": str(configuration),
        "KERNEL_INSTALL_BOOT_ROOT": str(boot),
        "KERNEL_INSTALL_ENTRY_TOKEN": token,
        "KERNEL_INSTALL_MACHINE_ID": token,
        "KERNEL_INSTALL_LAYOUT": "bls",
        "KERNEL_INSTALL_STAGING_AREA": str(tmp_path / "staging"),
        "KERNEL_INSTALL_VERBOSE": "0",
    }
    argv = [str(LOADER_ENTRY), "add", release, str(boot / token / release), str(image)]
    subprocess.run(argv, env=environment, check=True, capture_output=True)
    (boot / "loader/loader.conf").touch()
    (tmp_path / "etc/machine-id").write_text(f"{token}\n", encoding="utf-8")
    facts = collect(str(tmp_path))["boot"]["entries"]
    assert [entry["source"] for entry in facts] == [f"/boot/efi/loader/entries/{token}-{release}.conf"]
    for operation in plan.operations:  # the simulation's entry is the real one's
        machine.do(operation, reboot=False)
    boot_entry = machine.host.boot.entries[0]
    assert (facts[0]["arguments"], boot_entry.source) == (boot_entry.arguments, facts[0]["source"])


def test_bash_reads_the_configuration_of_dracut(tmp_path: Path) -> None:
    """dracut reads its configuration, and the scripts of its modules, with bash."""
    files = files_of("dracut-by-address")
    (tmp_path / "conf").write_text(files[DRACUT], encoding="utf-8")
    script = f'. {tmp_path}/conf; printf "%s\\n" "$force_drivers" "$install_items" "$add_dracutmodules"'
    process = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, check=True).stdout
    assert [line.split() for line in process.splitlines()] == [
        ["vfio_pci", "vfio_iommu_type1"],
        [MODPROBE],
        ["gpustack"],
    ]
    for path in (DRACUT_MODULE, DRACUT_SCRIPT):
        assert subprocess.run(["bash", "-n"], input=files[path], text=True, check=False).returncode == 0


def test_a_hook_of_dracuts_leaves_the_shell_that_reads_it_as_it_was(tmp_path: Path) -> None:
    hook = files_of("dracut-by-address")[DRACUT_SCRIPT]
    for place in ("/sys/", "/run/", "/dev/"):
        (tmp_path / place.strip("/")).mkdir()
        hook = hook.replace(place, f"{tmp_path}{place}")
    (tmp_path / "hook.sh").write_text(hook, encoding="utf-8")
    script = f'address=mine; . {tmp_path}/hook.sh; echo "$address"; type keep'
    ran = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines()[0] == "mine"
    assert "keep: not found" in ran.stdout + ran.stderr
    output = (tmp_path / "run/gpustack/devices").read_text(encoding="utf-8").splitlines()
    assert output == [f"0000:84:00.{n} is left alone: nothing is there" for n in (0, 1)]
