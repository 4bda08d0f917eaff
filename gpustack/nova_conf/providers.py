"""The file for nova-compute that adds resources to the provider of its host in Placement (Victoria and later).

nova-compute reads ``*.yaml`` of ``[compute] provider_config_location`` when it starts. It never changes what it reads
there: neither its periodic tasks nor PCI in Placement touch the inventories.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpustack.codes import Code
from gpustack.findings import Finding, finding
from gpustack.nova_options.markers import MARK

DIRECTORY = "/etc/nova/provider_config"
"""The default of ``[compute] provider_config_location``."""
PATH = f"{DIRECTORY}/gpustack.yaml"


INSTEAD: Mapping[str, str] = {
    "kolla": "set nova_cell_compute_provider_config of each host to its content",
    "kayobe": "set nova_cell_compute_provider_config of each host to its content",
}
"""What places the file with a deployment tool that has a place for it."""
_BY_HAND = f"place it in {DIRECTORY} of each host"


def not_written(place: str, deployment: str = "") -> Finding:
    """The finding for a deployment whose configuration does not contain the file."""
    return finding(Code.PROVIDERS_NOT_WRITTEN, place=place, instead=INSTEAD.get(deployment, _BY_HAND))


def text(markers: Mapping[str, int]) -> str | None:
    """The content of the file; None if the host needs none.

    :param markers: the units by marker class.
    """
    if not markers:
        return None
    import yaml

    inventories = [{name: {"total": total, "max_unit": total}} for name, total in sorted(markers.items())]
    content = {
        "meta": {"schema_version": "1.0"},
        "providers": [{"identification": {"uuid": "$COMPUTE_NODE"}, "inventories": {"additional": inventories}}],
    }
    head = f"{MARK}: change the spec and render again.\n# Nova counts these units against the limits of projects.\n"
    return head + yaml.safe_dump(content, sort_keys=False)
