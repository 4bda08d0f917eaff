"""The file for nova-compute that adds resources to the provider of its host in Placement (Victoria and later).

nova-compute reads ``*.yaml`` of ``[compute] provider_config_location`` when it starts. It never changes what it reads
there: neither its periodic tasks nor PCI in Placement touch the inventories.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from gpustack.base.files import read_text
from gpustack.base.findings import Code, Finding, finding
from gpustack.configure.sources import Source
from gpustack.nova_options.config import NovaConfiguration
from gpustack.nova_options.markers import MARK
from gpustack.nova_options.releases import Release

DIRECTORY = "/etc/nova/provider_config"
"""The default of ``[compute] provider_config_location``."""
PATH = f"{DIRECTORY}/gpustack.yaml"


_ANSIBLE = "in the host_vars of each host, set nova_cell_compute_provider_config to its content"
_INSTEAD: Mapping[str, str] = {
    "kolla": _ANSIBLE,
    "kayobe": f"{_ANSIBLE} (etc/kayobe/kolla/inventory/host_vars)",
    "openstack-ansible": "the role os_nova has nova_provider_overrides since 2023.1 only",
    "openstack-helm": (
        f"the chart has no value for it: mount a hostPath volume at {DIRECTORY} (pod.mounts.nova_compute), and place it"
        " there on each host"
    ),
}
"""How to place the file with a deployment tool for which gpustack does not write it."""
_BY_HAND = f"place it in {DIRECTORY} of each host"
_SINCE: Mapping[str, int] = {"drop-in": 0, "rhoso": 0, "openstack-ansible": 27}
"""The deployment tools whose rendering contains the file, and the release of Nova from which they take it."""


def provided(sources: Iterable[Source]) -> dict[str, dict[str, int]]:
    """The resources in the files of ``provider_config`` beside configurations, by the label of the configuration.

    Without those that are not known: no such directory, another location in nova.conf, or a file that is no YAML.
    """
    return {
        source.label: found
        for source in sources
        if "compute" in source.services and (found := _beside(source.configuration)) is not None
    }


def _beside(configuration: NovaConfiguration) -> dict[str, int] | None:
    import yaml

    if any(setting.path == "compute/provider_config_location" for setting in configuration.settings):
        return None
    parents = (Path(file).parent for file in configuration.files)
    tops = {parent.parent if parent.name.endswith(".d") else parent for parent in parents}
    directories = [top / PurePosixPath(DIRECTORY).name for top in tops]
    if not any(directory.is_dir() for directory in directories):
        return None
    totals: dict[str, int] = {}
    try:
        for file in (file for directory in directories for file in sorted(directory.glob("*.yaml"))):
            for provider in yaml.safe_load(read_text(file))["providers"]:
                for inventory in provider["inventories"]["additional"]:
                    totals |= {str(name): int(of["total"]) for name, of in inventory.items()}
    except (OSError, LookupError, TypeError, ValueError, AttributeError, RecursionError, yaml.YAMLError):
        return None
    return totals


def is_written(deployment: str, release: Release) -> bool:
    """Whether a rendering for a deployment tool contains the file."""
    return deployment in _SINCE and release.major >= _SINCE[deployment]


def not_written(place: str, deployment: str = "") -> Finding:
    """The finding for a deployment whose configuration does not contain the file."""
    return finding(Code.PROVIDERS_NOT_WRITTEN, place=place, instead=_INSTEAD.get(deployment, _BY_HAND))


def content(markers: Mapping[str, int]) -> dict[str, object]:
    """The content of the file.

    :param markers: the units by marker class.
    """
    inventories = [{name: {"total": total, "max_unit": total}} for name, total in sorted(markers.items())]
    return {
        "meta": {"schema_version": "1.0"},
        "providers": [{"identification": {"uuid": "$COMPUTE_NODE"}, "inventories": {"additional": inventories}}],
    }


def text(markers: Mapping[str, int]) -> str | None:
    """The text of the file; None if the host needs none.

    :param markers: the units by marker class.
    """
    if not markers:
        return None
    import yaml

    head = f"{MARK}: change the spec and render again.\n# Nova counts these units against the limits of projects.\n"
    return head + yaml.safe_dump(content(markers), sort_keys=False)
