"""The file for nova-compute that adds resources to the provider of its host in Placement (Victoria and later).

nova-compute reads ``*.yaml`` of ``[compute] provider_config_location`` when it starts. It never changes what it reads
there: neither its periodic tasks nor PCI in Placement touch the inventories.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gpustack.base.files import read_text
from gpustack.base.findings import Code, Finding, finding
from gpustack.base.limited_yaml import LimitedLoader, load
from gpustack.nova_options import provider_config, releases
from gpustack.nova_options.config import NovaConfiguration
from gpustack.nova_options.markers import MARK
from gpustack.nova_options.options import Release

DIRECTORY = "/etc/nova/provider_config"
"""The default of ``[compute] provider_config_location``."""
PATH = f"{DIRECTORY}/gpustack.yaml"
_LOCATION = releases.option("compute/provider_config_location")

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


@dataclass(frozen=True, kw_only=True)
class ProviderFiles:
    """What the files of provider_config beside a configuration add to the provider of a compute node.

    :ivar totals: the units by resource class.
    :ivar faults: the place and the reason of each refusal of nova-compute.
    """

    totals: Mapping[str, int]
    faults: Sequence[tuple[str, str]] = ()


class _Loader(LimitedLoader):
    values = 100_000  # nova-compute's schema goes through all of them


def read(configuration: NovaConfiguration, release: Release) -> ProviderFiles | None:
    """Read ``*.yaml`` of the directory beside a configuration that has the name of provider_config_location.

    None if there is no such directory, another option decides its name, or the release reads none. Anchors that grow,
    and Python's tags, are refused without expanding them.
    """
    import yaml

    settings = configuration.effective(_LOCATION)
    if not _LOCATION.known_to(release) or (settings and settings[-1].unknown):
        return None
    name = PurePosixPath(settings[-1].value if settings else DIRECTORY).name
    parents = (Path(file).parent for file in configuration.files)
    tops = dict.fromkeys(parent.parent if parent.name.endswith(".d") else parent for parent in parents)
    directories = [top / name for top in tops if name and (top / name).is_dir()]
    totals: dict[str, int] = {}
    faults: list[tuple[str, str]] = []
    owners: dict[str, str] = {}
    for file in (file for directory in directories for file in sorted(directory.glob("*.yaml"))):
        try:
            data = load(read_text(file), _Loader)
        except yaml.MarkedYAMLError as error:
            line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
            faults.append((f"{file}{line}", error.problem or "it is no YAML"))
            continue
        except (OSError, ValueError, yaml.YAMLError) as error:
            faults.append((str(file), f"it can't be read: {' '.join(str(error).split())}"))
            continue
        if reasons := list(provider_config.faults(data, release)):
            faults += [(str(file), reason) for reason in reasons]
            continue
        for owner, provider in provider_config.providers(data):
            if owner in owners:
                faults.append((str(file), f"{owners[owner]} also describes the provider {owner}"))
            owners.setdefault(owner, str(file))
            for inventory in provider_config.additions(provider, "inventories"):
                totals |= {name: int(of["total"]) for name, of in inventory.items()}
    return ProviderFiles(totals=totals, faults=faults) if directories else None


def is_written(deployment: str, release: Release) -> bool:
    """Whether a rendering for a deployment tool contains the file."""
    return deployment in _SINCE and release.major >= _SINCE[deployment]


def not_written(place: str, deployment: str = "") -> Finding:
    """The finding for a deployment whose configuration does not contain the file."""
    return finding(Code.PROVIDERS_NOT_WRITTEN, place=place, instead=_INSTEAD.get(deployment, _BY_HAND))


def content(markers: Mapping[str, int], traits: Mapping[str, Sequence[str]]) -> dict[str, object] | None:
    """The content of the file; None if the host needs none.

    :param markers: the units by marker class.
    :param traits: the traits of providers of mediated devices, by the provider's name.
    """
    inventories = [{name: {"total": total, "max_unit": total}} for name, total in sorted(markers.items())]
    own: list[object] = [{"identification": {"uuid": "$COMPUTE_NODE"}, "inventories": {"additional": inventories}}]
    of_cards = [{"identification": {"name": n}, "traits": {"additional": [*names]}} for n, names in traits.items()]
    if not markers and not traits:
        return None
    return {"meta": {"schema_version": "1.0"}, "providers": [*(own if markers else ()), *of_cards]}


def text(markers: Mapping[str, int], traits: Mapping[str, Sequence[str]]) -> str | None:
    """The text of the file; None if the host needs none. The parameters are those of :func:`content`."""
    if (made := content(markers, traits)) is None:
        return None
    import yaml

    head = f"{MARK}: change the spec and render again.\n"
    head += "# Nova counts these units against the limits of projects.\n" if markers else ""
    return head + yaml.safe_dump(made, sort_keys=False)
