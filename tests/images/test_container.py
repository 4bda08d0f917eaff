"""``Containerfile`` and ``execution-environment.yml``: built from the bundle of ``make offline``, and used.

They need root rights, mmdebstrap and buildah, so CI does not run them: ``make images`` does. Neither a registry nor a
package index is asked, and there is no container engine: buildah runs commands in a chroot.
"""

from __future__ import annotations

import json
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from gpustack import __version__
from support import images
from support.images import ENTRY, ENVIRONMENT, NAME, REVISION, ran

INVENTORY = """\
gpu_hosts:
  hosts: {gpu01: {gpustack_root: /data/gpu01}}
  vars: {ansible_connection: local, ansible_become: false, ansible_python_interpreter: /usr/bin/python3}
"""
SLICE = (
    "mkdir /runner/job && cp -r /data/project /data/inventory /runner/job"
    " && ansible-runner transmit /runner/job -p plan.yml --cmdline '-e gpustack_spec=gpustack.yaml'"
    " | ansible-runner worker --private-data-dir /runner/worker | ansible-runner process /runner/job"
    " && grep -x 0 /runner/job/artifacts/rc && gpustack host results /runner/job/artifacts/"
)
"""A job as AWX runs it: its files go to the worker in this image, and its events come back."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with images.base(tmp_path_factory.mktemp("base")) as name:
        yield name


@pytest.fixture(scope="module")
def archives(base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with images.images(base, tmp_path_factory.mktemp("built")) as directory:
        yield directory


@pytest.fixture
def container(archives: Path) -> Iterator[str]:
    with images.container(NAME) as name:
        yield name


@pytest.fixture
def environment(archives: Path) -> Iterator[str]:
    with images.container(ENVIRONMENT) as name:
        yield name


@pytest.mark.parametrize(
    ("image", "user", "entry"), [(NAME, "gpustack", ["gpustack"]), (ENVIRONMENT, "1000", list(ENTRY))]
)
def test_labels_user_and_entry_point(archives: Path, image: str, user: str, entry: list[str]) -> None:
    config = json.loads(ran("buildah", "inspect", "--type", "image", image))["OCIv1"]["config"]
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in config["Labels"].items()}
    assert (labels["version"], labels["revision"]) == (__version__, REVISION)
    assert labels["base.name"] == images.BASE
    assert (config["User"], config["Entrypoint"]) == (user, entry)


def test_only_what_runs_is_inside(container: str) -> None:
    assert ran("buildah", "run", container, "--", "gpustack", "--version").split() == ["gpustack", __version__]
    assert "uid=0" not in ran("buildah", "run", container, "--", "id")
    find = ("find", "/usr/bin", "/opt/gpustack", "-name", "gcc*", "-o", "-name", "pip", "-o", "-path", "/bundle")
    assert ran("buildah", "run", container, "--", *find) == ""
    report = ran("buildah", "run", container, "--", "gpustack", "doctor")
    assert "SSH client" in report
    assert "missing" not in report


def day(work: Path, container: str, *options: str, entry: tuple[str, ...] = ()) -> None:
    """From the first scan to files for Nova, with the directory as the only place for files."""
    ran(Path(sys.executable).with_name("gpustack"), "example", "create", work / "data")
    (work / "state").mkdir()
    for path in (work, work / "data", work / "state"):
        path.chmod(0o777)
    mounts = ("-v", f"{work / 'data'}:/data", "-v", f"{work / 'state'}:/state", "--workingdir", "/data")

    def inside(*words: str) -> str:
        return ran("buildah", "run", *options, *mounts, container, "--", *entry, *words)

    inside("gpustack", "scan", "--root", "gpu01", "--save", "hosts.json")
    inside("gpustack", "spec", "init", "--snapshot", "hosts.json", "--out", "made.yaml")
    assert "GRUB" in inside("gpustack", "host", "plan", "--snapshot", "hosts.json", "made.yaml")
    inside("gpustack", "nova", "render", "made.yaml", "--snapshot", "hosts.json", "--release", "2025.2", "--out", "out")
    inside("gpustack", "nova", "lint", "out", "--release", "2025.2")
    assert "nova_gpustack.passthrough" in inside("ansible-galaxy", "collection", "list")
    verify = ("nova_gpustack.passthrough.verify", "-e", "gpustack_spec=/data/made.yaml", "--list-hosts")
    assert "gpu01" in inside("ansible-playbook", "-i", "inventory.yaml", *verify)


@pytest.mark.parametrize("options", [(), ("--user", "12345", "--env", "HOME=/nonexistent")], ids=["user", "no-home"])
def test_a_hosts_part_of_a_day(container: str, tmp_path: Path, options: tuple[str, ...]) -> None:
    day(tmp_path, container, *options)


@pytest.mark.parametrize("user", ["1000", "1000650000:0"], ids=["awx", "openshift"])
def test_a_hosts_part_of_a_day_in_the_execution_environment(environment: str, tmp_path: Path, user: str) -> None:
    day(tmp_path, environment, "--user", user, entry=ENTRY)


def test_a_job_of_the_runner_plans_a_host(environment: str, tmp_path: Path) -> None:
    day(tmp_path, environment, "--user", "1000", entry=ENTRY)
    project, inventory = tmp_path / "data/project", tmp_path / "data/inventory"
    project.mkdir()
    inventory.mkdir()
    (project / "plan.yml").write_text("- import_playbook: nova_gpustack.passthrough.plan\n", encoding="utf-8")
    (tmp_path / "data/made.yaml").rename(project / "gpustack.yaml")
    (inventory / "hosts.yaml").write_text(INVENTORY, encoding="utf-8")
    mount = ("-v", f"{tmp_path / 'data'}:/data")
    output = ran("buildah", "run", *mount, environment, "--", *ENTRY, "bash", "-o", "pipefail", "-c", SLICE)
    assert "gpu01: 4 files, 3 commands, needs a reboot" in output


def test_the_collection_is_that_of_the_bundle(environment: str) -> None:
    inside = ("buildah", "run", environment, "--")
    places = ran(*inside, "find", "/usr", "/opt", "-path", "*/nova_gpustack/passthrough/plugins", "-printf", "%h\n")
    galaxy, wheel = sorted(places.split(), reverse=True)
    assert galaxy == "/usr/share/ansible/collections/ansible_collections/nova_gpustack/passthrough"
    differences = ran(*inside, "sh", "-c", f"diff -rq -x __pycache__ {galaxy} {wheel} || true").splitlines()
    assert [line for line in differences if not line.endswith(("FILES.json", "MANIFEST.json"))] == []


@pytest.mark.parametrize("image", [NAME, ENVIRONMENT])
def test_a_bill_lists_the_packages_of_debian_and_python(archives: Path, image: str) -> None:
    (path,) = archives.glob(f"{image.rpartition('/')[2]}-{__version__}.oci.tar.cdx.json")
    text = path.read_text(encoding="utf-8")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    names = {component["purl"].partition("@")[0] for component in json.loads(text)["components"]}
    assert {"pkg:deb/debian/openssh-client", "pkg:pypi/nova-gpustack", "pkg:pypi/ansible-core"} <= names
    assert ("pkg:pypi/ansible-runner" in names) == (image == ENVIRONMENT)


def digests(archives: Path) -> list[str]:
    """The digests of the image and of the execution environment."""
    found = []
    for path in sorted(archives.glob("*.oci.tar"), key=lambda path: len(path.name)):
        with tarfile.open(path) as tar:
            index = tar.extractfile("index.json")
            assert index is not None
            found.append(json.load(index)["manifests"][0]["digest"])
    return found


def test_two_builds_are_equal(base: str, archives: Path, tmp_path: Path) -> None:
    first = digests(archives)
    with images.images(base, tmp_path / "second", f"{NAME}-again") as second:
        assert len(first) == 2
        assert digests(second) == first
