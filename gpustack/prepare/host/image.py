"""The files that prepare hosts of image mode: in bootc and ostree, /usr and the initramfs belong to the image."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from gpustack.base.errors import PlanError, UsageError
from gpustack.base.files import file_errors, make_directory, write_atomic
from gpustack.base.findings import Code, Finding
from gpustack.base.host_groups import pattern
from gpustack.hosts.facts.model import Host
from gpustack.prepare.host.desired import desire
from gpustack.prepare.host.own_files import VFS, OwnedFile
from gpustack.prepare.host.render import render_image
from gpustack.prepare.host.tools import in_image_mode
from gpustack.spec.model import Spec


@dataclass(frozen=True, kw_only=True)
class HostImage:
    """The additions to an image.

    :ivar hosts: the hosts that it prepares.
    :ivar files: by absolute path in the image.
    :ivar fragment: the lines for its Containerfile.
    """

    hosts: tuple[str, ...]
    files: dict[str, OwnedFile]
    fragment: str
    findings: tuple[Finding, ...]


def image_for(spec: Spec, hosts: Iterable[Host]) -> HostImage:
    """The image for all of these hosts.

    :raises UsageError: if a host is not in image mode, has no GPUs to pass through, or shares cards by SR-IOV.
    :raises PlanError: if the hosts need different files.
    """
    if not (images := [_image(spec, host) for host in hosts]):
        raise UsageError("no host is left to make an image for", remedy="name hosts that the spec has")
    first = images[0]
    if others := [image for image in images if image.files != first.files]:
        names = pattern(name for image in others for name in image.hosts)
        raise PlanError(f"{names} would need another image than {first.hosts[0]}", remedy="make an image for each kind")
    return replace(
        first,
        hosts=tuple(name for image in images for name in image.hosts),
        findings=tuple(found for image in images for found in image.findings),
    )


def _image(spec: Spec, host: Host) -> HostImage:
    if not in_image_mode(host):
        remedy = "prepare it with `gpustack host apply`"
        raise UsageError("this host is not in image mode (bootc, ostree)", where=host.hostname, remedy=remedy)
    desired = desire(spec, host)
    if not desired.targets.exist:
        raise UsageError("the spec passes none of its GPUs through", where=host.hostname, remedy="correct the spec")
    if any(path in desired.files for path in VFS):
        raise UsageError("cards are shared by SR-IOV", where=host.hostname, remedy="install it in package mode")
    files, fragment = render_image(desired.arguments, desired.files)
    findings = tuple(found for found in desired.findings if found.code != Code.IMAGE_MODE)
    return HostImage(hosts=(host.hostname,), files=files, fragment=fragment, findings=findings)


def save(image: HostImage, out: Path) -> list[Path]:
    """Write an image's files below a directory that is empty or does not exist; returns their paths.

    :raises UsageError: if it has other files.
    :raises PlanError: if a file can't be written.
    """
    if out.exists() and any(out.iterdir()):
        raise UsageError("the directory is not empty", where=str(out), remedy="name a new directory with --out")
    contents = {path.lstrip("/"): file for path, file in image.files.items()}
    contents["Containerfile.gpustack"] = OwnedFile(content=image.fragment, mode="0644", why="")
    for path, file in contents.items():
        with file_errors(PlanError, "can't write the file", out / path):
            make_directory((out / path).parent, 0o755)
            write_atomic(out / path, file.content, mode=int(file.mode, 8), exact=True)
    return [out / path for path in contents]
