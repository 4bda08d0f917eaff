"""Renderings of one spec for three hosts of different makers or kinds, below a test's directory."""

from collections.abc import Sequence
from pathlib import Path

from gpustack.configure.desired import wanted
from gpustack.configure.inspection import existing_for
from gpustack.configure.render import Deployment, render
from gpustack.configure.rendered import Rendering
from gpustack.configure.sources import PLACEMENT, SERVICES
from gpustack.nova_options import releases
from gpustack.spec.load import parse_spec
from support.nova_hosts import host

SPEC = """\
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}}
  mi300x: {match: {vendor: "1002", product: "74a1"}}
hosts: {gpu01: [k4200], gpu-amd01: [mi300x]}
nova: {release: "RELEASE", placement: PLACEMENT}
"""
HOSTS = [host("k4200-prepared"), host("mi300x")]
NIC = '{"vendor_id": "8086", "product_id": "1521", "physical_network": "a"}'
FPGA = '{"name": "fpga", "vendor_id": "1172", "product_id": "09c4", "device_type": "type-PCI"}'


def rendered(
    root: Path,
    deployment: Deployment,
    *arguments: str,
    release: str = "2025.2",
    placement: str = "off",
    directory: str | None = None,
    spec: str = SPEC,
    services: Sequence[str] = (),
) -> Rendering:
    """The output of `gpustack nova render --out ROOT`."""
    text = spec.replace("RELEASE", release).replace("PLACEMENT", placement)
    desired = wanted(parse_spec(text, "gpustack.yaml"), HOSTS, release=releases.release(release))
    existing = existing_for(deployment, arguments=arguments, root=root, directory=directory)
    return render(
        desired,
        deployment=deployment,
        services=services or (*SERVICES, PLACEMENT),
        hosts=HOSTS,
        existing=existing,
        root=root,
        directory=directory,
    )


def written(root: Path, rendering: Rendering) -> None:
    """Write the files below a directory, as the command does."""
    for file in rendering.files:
        path = root / file.target / file.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.onto(path.read_text() if path.exists() else None))


def codes(rendering: Rendering, *wanted_codes: str) -> list[tuple[str, str]]:
    """Code and place of some findings; the place is shortened to the file's name and the rest."""
    return [(f.code, f.place.rpartition("/")[2]) for f in rendering.findings if f.code in wanted_codes]
