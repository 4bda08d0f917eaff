"""A stand-in for ``update-initramfs``: builds real images from the directory of an example host.

It follows mkinitramfs(8) of Debian and Ubuntu: the modules of ``MODULES=most``, of ``/etc/initramfs-tools/modules`` and
of hooks, their dependencies and soft dependencies, and the files of ``modprobe.d``. Hooks are run by a real shell, with
absolute paths redirected to the host's directory.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpustack_demo.examples import images
from gpustack_demo.examples.distribution import depmod, object_path
from gpustack_demo.examples.errors import StandInError
from gpustack_demo.examples.kmod import Configuration, plain
from gpustack_demo.examples.machine import InstalledKernel, Machine, Module

_MODPROBE_DIRECTORIES = ("etc/modprobe.d", "usr/lib/modprobe.d")
_ABSOLUTE = re.compile(r"(?<![\w$}/.-])(/(?:etc|usr|lib|s?bin|run|sys|proc|boot|dev/kmsg\b)/?)")
_IDENT = {
    "etc/initrd-release": "PRETTY_NAME=initramfs\n",
    "init": "#!/bin/sh\n# the init of an example host's initramfs\n",
}


def update_initramfs(root: Path, arguments: list[str]) -> str:
    """Play ``update-initramfs -u|-c [-k RELEASE|all]``; return a description."""
    machine = Machine.load(root)
    wanted, remaining = [], list(arguments)
    action = None
    while remaining:
        option = remaining.pop(0)
        if option in ("-u", "-c", "-uk", "-ck"):
            action = option
        if option == "-k" or option.endswith("k"):
            wanted.append(remaining.pop(0) if remaining else "")
        elif option not in ("-u", "-c", "-v"):
            raise StandInError(f"the stand-in for update-initramfs does not know {option!r}")
    if action is None:
        raise StandInError("update-initramfs: -u or -c is missing")
    everything = [k.release for k in machine.kernels]
    releases = everything if "all" in wanted else wanted or everything[:1]
    for release in releases:
        kernel = machine.kernel(release)
        if kernel is None:
            raise StandInError(f"update-initramfs: no modules of Linux {release!r}")
        replace(root / f"boot/initrd.img-{release}", build(root, kernel))
    return "\n".join(f"Generating /boot/initrd.img-{release}" for release in releases)


def replace(path: Path, content: bytes) -> None:
    """Replace an image atomically."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(content)
    new.replace(path)


def build(root: Path, kernel: InstalledKernel) -> bytes:
    """Build the image of one kernel."""
    with tempfile.TemporaryDirectory(prefix="mkinitramfs-") as temporary:
        destination = Path(temporary)
        (destination / "conf").mkdir()
        requested = [_first_word(line) for line in _lines(root / "etc/initramfs-tools/modules")]
        (destination / "conf/modules").write_text(
            "".join(f"{line}\n" for line in _lines(root / "etc/initramfs-tools/modules")), encoding="utf-8"
        )
        for hook in _scripts(root / "etc/initramfs-tools/hooks"):
            _run_hook(root, hook, kernel, destination)
        requested += _lines(destination / ".modules")
        (destination / ".modules").unlink(missing_ok=True)
        _copy_scripts(root, destination)
        members = {
            str(path.relative_to(destination)): (stat.S_IMODE(path.stat().st_mode), path.read_bytes())
            for path in destination.rglob("*")
            if path.is_file()
        }
    for directory in _MODPROBE_DIRECTORIES:
        for path in sorted((root / directory).glob("*.conf")):
            members[str(path.relative_to(root))] = (0o644, path.read_bytes())
    modules = list(closure(root, kernel, requested))
    tree = f"usr/lib/modules/{kernel.release}"
    for name, text in depmod([*modules, *(m for m in kernel.modules if m.builtin)]).items():
        members[f"{tree}/{name}"] = (0o644, text.encode())
    for module in modules:
        members[f"{tree}/{object_path(module)}"] = (0o644, f"the module {module.name}\n".encode())
    members |= {name: (0o755 if name == "init" else 0o644, text.encode()) for name, text in _IDENT.items()}
    microcode = [(path, stat.S_IFDIR | 0o755, b"") for path in ("kernel", "kernel/x86", "kernel/x86/microcode")]
    microcode.append(("kernel/x86/microcode/GenuineIntel.bin", stat.S_IFREG | 0o644, b"microcode\n"))
    return images.write_image(members, early=images.archive(microcode))


def closure(root: Path, kernel: InstalledKernel, requested: Iterable[str]) -> Iterator[Module]:
    """The modules of an image: the default and requested ones, and those that ``modprobe --show-depends`` adds."""
    directories = [
        {p.name: p.read_text(encoding="utf-8", errors="replace") for p in (root / d).glob("*.conf")}
        for d in _MODPROBE_DIRECTORIES
    ]
    configuration = Configuration.read(directories, ())
    wanted = [m.name for m in kernel.modules if m.early] + [plain(name) for name in requested]
    chosen: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name.endswith("/"):  # copy_modules_dir
            wanted += [m.name for m in kernel.modules if f"kernel/{m.path}/".startswith(name)]
            continue
        module = kernel.module(name)
        if module is None or module.builtin or module.name in chosen:
            continue
        chosen.add(module.name)
        wanted += [*module.needs, *configuration.before.get(name, ()), *configuration.after.get(name, ())]
    return (m for m in kernel.modules if m.name in chosen)


def at_root(script: str, root: Path) -> str:
    """A shell script with absolute paths redirected to a host's directory."""
    return _ABSOLUTE.sub(lambda match: f"{root}{match.group(1)}", script)


def _run_hook(root: Path, hook: Path, kernel: InstalledKernel, destination: Path) -> None:
    script = at_root(hook.read_text(encoding="utf-8"), root)
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C",
        "DESTDIR": str(destination),
        "CONFDIR": str(root / "etc/initramfs-tools"),
        "MODULESDIR": f"/lib/modules/{kernel.release}",
        "version": kernel.release,
        "verbose": "n",
    }
    for stage in (["prereqs"], []):
        process = subprocess.run(
            ["/bin/sh", "-c", script, hook.name, *stage],
            env=environment,
            cwd=destination,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode != 0:
            raise StandInError(
                f"update-initramfs: the hook {hook.name} failed with {process.returncode}: {process.stderr.strip()}"
            )


def _copy_scripts(root: Path, destination: Path) -> None:
    """Copy the distribution's and the administrator's boot scripts, with the order file that ``init`` uses.

    As in initramfs-tools (``cache_run_scripts`` of its ``hook-functions``), each script reports its prerequisites, and
    tsort(1) computes the order.
    """
    for scripts in (root / "usr/share/initramfs-tools/scripts", root / "etc/initramfs-tools/scripts"):
        for stage in sorted(p for p in scripts.iterdir() if p.is_dir()):
            for script in _scripts(stage):
                target = destination / "scripts" / stage.name / script.name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(script, target)
    for stage in (destination / "scripts").iterdir():
        names = [script.name for script in _scripts(stage)]
        pairs = [f"{name} {name}" for name in names]
        for name in names:
            wanted = _run(["/bin/sh", str(stage / name), "prereqs"], f"the boot script {name} prereqs").split()
            pairs += [f"{before} {name}" for before in wanted]
        order = [name for name in _run(["tsort"], "tsort", "\n".join(pairs)).split() if name in names]
        text = "".join(f'/scripts/{stage.name}/{name} "$@"\n' for name in order)
        (stage / "ORDER").write_text(text, encoding="utf-8")


def _run(argv: list[str], step: str, text: str = "") -> str:
    process = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise StandInError(f"update-initramfs: {step} failed with {process.returncode}: {process.stderr.strip()}")
    return process.stdout


def _scripts(directory: Path) -> list[Path]:
    """The files of a directory that initramfs-tools runs: executable, with names of letters, digits, ``_ -``."""
    return [
        path
        for path in sorted(directory.iterdir())
        if path.is_file() and re.fullmatch(r"[\w.-]+", path.name) and os.access(path, os.X_OK)
    ]


def _lines(path: Path) -> list[str]:
    """The lines of a file without comments and blank lines."""
    if not path.exists():
        return []
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


def _first_word(line: str) -> str:
    return line.split()[0]
