"""``Containerfile``: built on a root of Debian 13 from the bundle of ``make offline``, and a host's part of a day.

It needs root rights, mmdebstrap and buildah, so CI does not run it: ``make images`` does. No registry and no container
engine is asked: buildah runs commands in a chroot.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpustack import __version__

TOP = Path(__file__).parents[2]
BASE, IMAGE = "localhost/gpustack-test-base", "localhost/gpustack-test"
BUILDAH = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"}
PACKAGES = "ca-certificates,openssh-client,python3,python3-venv"


def ran(*command: str | Path, code: int = 0) -> str:
    """What a command prints, errors included."""
    process = subprocess.run(
        command, env=BUILDAH, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert process.returncode == code, f"{' '.join(map(str, command))}\n{process.stdout}"
    return process.stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The image; what was built is removed, and other images of this machine stay."""
    root = tmp_path_factory.mktemp("base") / "root.tar"
    ran("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "trixie", root)
    base = ran("buildah", "from", "scratch").strip()
    ran("buildah", "add", "--quiet", base, root, "/")
    ran("buildah", "commit", "--quiet", "--rm", base, BASE)
    values = {"BASE": BASE, "VERSION": __version__, "REVISION": "a" * 40}
    arguments = [word for name, value in values.items() for word in ("--build-arg", f"{name}={value}")]
    ran("buildah", "bud", "--quiet", *arguments, "-f", TOP / "Containerfile", "-t", IMAGE, TOP / "dist")
    yield IMAGE
    ran("buildah", "rmi", "--force", IMAGE, BASE)


@pytest.fixture
def container(image: str) -> Iterator[str]:
    name = ran("buildah", "from", image).strip()
    yield name
    ran("buildah", "rm", name)


def test_labels_user_and_entry_point(image: str) -> None:
    config = json.loads(ran("buildah", "inspect", "--type", "image", image))["OCIv1"]["config"]
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in config["Labels"].items()}
    assert (labels["version"], labels["revision"]) == (__version__, "a" * 40)
    assert (config["User"], config["Entrypoint"]) == ("gpustack", ["gpustack"])


def test_only_what_runs_is_inside(container: str) -> None:
    assert ran("buildah", "run", container, "--", "gpustack", "--version").split() == ["gpustack", __version__]
    assert "uid=0" not in ran("buildah", "run", container, "--", "id")
    find = ("find", "/usr/bin", "/opt/gpustack", "-name", "gcc*", "-o", "-name", "pip", "-o", "-path", "/bundle")
    assert ran("buildah", "run", container, "--", *find) == ""
    report = ran("buildah", "run", container, "--", "gpustack", "doctor")
    assert "SSH client" in report
    assert "missing" not in report


@pytest.mark.parametrize("user", ["gpustack", "12345"])
def test_a_hosts_part_of_a_day(container: str, tmp_path: Path, user: str) -> None:
    """From the first scan to files for Nova; a user without home has the mounts alone."""
    work = tmp_path / "work"
    ran(Path(sys.executable).with_name("gpustack"), "example", "create", work)
    (tmp_path / "state").mkdir()
    for path in (tmp_path, work, tmp_path / "state"):
        path.chmod(0o777)

    def inside(*words: str, code: int = 0) -> str:
        mounts = ("-v", f"{work}:/data", "-v", f"{tmp_path / 'state'}:/state")
        home = ("--env", "HOME=/nonexistent") if user == "12345" else ()
        return ran("buildah", "run", "--user", user, *home, *mounts, container, "--", *words, code=code)

    inside("gpustack", "scan", "--root", "gpu01", "--save", "hosts.json")
    inside("gpustack", "spec", "init", "--snapshot", "hosts.json", "--out", "made.yaml")
    assert "GRUB" in inside("gpustack", "host", "plan", "--snapshot", "hosts.json", "made.yaml")
    inside("gpustack", "nova", "render", "made.yaml", "--snapshot", "hosts.json", "--release", "2025.2", "--out", "out")
    inside("gpustack", "nova", "lint", "out", "--release", "2025.2")
    assert "nova_gpustack.passthrough" in inside("ansible-galaxy", "collection", "list")
    check = (
        "-i",
        "inventory.yaml",
        "nova_gpustack.passthrough.verify",
        "-e",
        "gpustack_spec=/data/made.yaml",
        "--list-hosts",
    )
    assert "gpu01" in inside("ansible-playbook", *check)
