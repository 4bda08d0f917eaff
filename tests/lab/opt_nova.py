"""Nova's compute service as a tree in /opt/nova of the host's image: a copy of the embedded Nova's environment.

Debian 12's own nova-compute is from 2022, too old for the control plane of the cloud lab.
"""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path

from gpustack_demo.embedded.environment import Environment, ensure

from .errors import LabError

RELEASE = "2025.2"
PYTHON = "3.11"
"""The Python of the host's distribution: compiled modules of another one do not load there."""
ROOT = "opt/nova"
PROGRAMS = ("nova-compute", "privsep-helper")
# Control plane, clients, tools for tests: nova-compute imports none of them.
UNUSED = ("keystone", "openstackclient", "pip", "placement", "psycopg2_binary.libs", "psycopg2", "saml2", "testtools")
UNUSED_EVERYWHERE = ("tests", "locale")
LIBVIRT = ("libvirt.py", "libvirtmod.cpython-311-x86_64-linux-gnu.so")
"""What Debian's python3-libvirt has: its compiled module must fit the host's libvirt."""


def cache_key() -> bytes:
    """A text that changes with the contents of the tree."""
    return Path(__file__).read_bytes() + str(ensure(RELEASE).path).encode()


def write_tar(path: Path) -> None:
    """Write the tree as an archive that unpacks in the host's root directory."""
    environment = ensure(RELEASE)
    packages = environment.path / "lib" / f"python{PYTHON}" / "site-packages"
    if not packages.is_dir():
        raise LabError(
            f"{environment.path} is not for Python {PYTHON}, which the lab's host has: "
            f"the cloud lab needs python{PYTHON} on this machine (Debian 12)"
        )
    with tarfile.open(path, "w") as archive:
        inside = f"{ROOT}/lib/python{PYTHON}/site-packages"
        archive.add(packages, inside, filter=_wanted)
        for name in LIBVIRT:
            _link(archive, f"{inside}/{name}", f"/usr/lib/python3/dist-packages/{name}")
        _link(archive, f"{ROOT}/bin/python", f"/usr/bin/python{PYTHON}")
        _file(archive, f"{ROOT}/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n", mode=0o644)
        for name in PROGRAMS:
            _file(archive, f"{ROOT}/bin/{name}", _program(environment, name), mode=0o755)


def _wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = entry.name.rpartition("/")[2]
    if name in UNUSED_EVERYWHERE or (name in UNUSED and entry.name.endswith(f"/site-packages/{name}")):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def _program(environment: Environment, name: str) -> str:
    return re.sub(r"\A#!.*", f"#!/{ROOT}/bin/python", environment.program(name).read_text())


def _file(archive: tarfile.TarFile, path: str, text: str, *, mode: int) -> None:
    entry = tarfile.TarInfo(path)
    entry.mode, entry.size = mode, len(text.encode())
    archive.addfile(entry, io.BytesIO(text.encode()))


def _link(archive: tarfile.TarFile, path: str, target: str) -> None:
    entry = tarfile.TarInfo(path)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    archive.addfile(entry)
