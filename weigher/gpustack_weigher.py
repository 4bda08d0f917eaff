# mypy: disable-error-code="import-not-found,misc,no-any-return,untyped-decorator"
"""A weigher for nova-scheduler that fills GPU hosts of different sizes one after another.

Nova's PCIWeigher prefers the host with the fewest free devices, whatever it is used to: an empty host with two GPUs
comes before a host with eight GPUs of which five are in use. This weigher prefers the host of which the larger part is
in use with the new instance: (requested + used) / total, counted for the requested device only. Other devices of the
host, such as virtual functions of network cards, have no influence.

Enable it for nova-scheduler (no other service reads it)::

    [filter_scheduler]
    weight_classes = nova.scheduler.weights.all_weighers,gpustack_weigher.GpuPackingWeigher

It imports Nova and Nova's own dependencies only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import nova.conf
import sqlalchemy as sa
from nova.db.main import api, models
from nova.objects import CellMapping
from nova.pci import utils as pci_utils
from nova.scheduler import utils, weights
from oslo_config import cfg
from oslo_log import log as logging

from nova import context as nova_context

__version__ = "0.2.0.dev0"

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)
MULTIPLIER = "gpu_packing_weight_multiplier"
CONF.register_opt(
    cfg.FloatOpt(
        MULTIPLIER,
        default=100.0,
        help="Multiplier of GpuPackingWeigher. The default outvotes all weighers of Nova, also with"
        " pci_weight_multiplier = 10. Metadata of an aggregate with this name has precedence.",
    ),
    group="filter_scheduler",
)
_KEYS = ("vendor_id", "product_id", "dev_type")
_PRESENT = ("available", "claimed", "allocated")
"""The states of a device that instances can use or are using."""

Kinds = dict[tuple[str, str, str], int]
"""The number of devices by vendor, product and type."""


class GpuPackingWeigher(weights.BaseHostWeigher):
    """Prefer the host of which the larger part of the requested devices is in use with the new instance."""

    def weight_multiplier(self, host_state: Any) -> float:  # noqa: ANN401 - Nova has no types
        """The multiplier: metadata of the host's aggregates, else the option."""
        return utils.get_weight_multiplier(host_state, MULTIPLIER, CONF.filter_scheduler[MULTIPLIER])

    def weigh_objects(self, weighed_obj_list: Sequence[Any], weight_properties: Any) -> list[float]:  # noqa: ANN401
        """The weights of all hosts: one query for each cell. Without a request for devices, or on error, all are 0."""
        requested = _requests(weight_properties)
        hosts = [weighed.obj for weighed in weighed_obj_list]
        if not requested:
            return [0.0] * len(hosts)
        try:
            totals = _totals(hosts)
        except Exception:  # hosts must still be chosen if a cell does not answer
            LOG.exception("GpuPackingWeigher has no effect: the devices of the hosts can't be read")
            return [0.0] * len(hosts)
        return [_weight(host, requested, totals.get(host.uuid, {})) for host in hosts]

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:  # noqa: ANN401
        return self.weigh_objects([weights.WeighedHost(obj, 0.0)], weight_properties)[0]


def _requests(request_spec: Any) -> list[Any]:  # noqa: ANN401
    """The requests of a flavor's aliases; a request of a Neutron port has no alias."""
    requests = request_spec.pci_requests.requests if request_spec.pci_requests else ()
    return [request for request in requests if request.alias_name]


def _weight(host: Any, requested: Sequence[Any], total: Kinds) -> float:  # noqa: ANN401
    specs = [{k: v for k, v in spec.items() if k in _KEYS} for request in requested for spec in request.spec]
    matching = {kind for kind in total if pci_utils.pci_device_prop_match(dict(zip(_KEYS, kind)), specs)}
    pools = host.pci_stats.pools if host.pci_stats else ()
    free = sum(pool["count"] for pool in pools if tuple(pool.get(key) for key in _KEYS) in matching)
    number = sum(total[kind] for kind in matching)
    count = sum(request.count for request in requested)
    return (count + max(number - free, 0)) / number if number else 0.0


def _totals(hosts: Iterable[Any]) -> dict[str, Kinds]:
    """The devices of each host by the UUID of its compute node."""
    by_cell: dict[str, list[str]] = {}
    for host in hosts:
        by_cell.setdefault(host.cell_uuid, []).append(host.uuid)
    totals: dict[str, Kinds] = {}
    admin = nova_context.get_admin_context()
    for cell, nodes in by_cell.items():
        with nova_context.target_cell(admin, CellMapping.get_by_uuid(admin, cell)) as targeted:
            for node, vendor, product, kind, number in _counts(targeted, nodes):
                totals.setdefault(node, {})[vendor, product, kind] = number
    return totals


@api.pick_context_manager_reader
def _counts(context: Any, nodes: Sequence[str]) -> list[Any]:  # noqa: ANN401
    node, device = models.ComputeNode, models.PciDevice
    kind = (device.vendor_id, device.product_id, device.dev_type)
    statement = (
        sa.select(node.uuid, *kind, sa.func.count())
        .join(device, device.compute_node_id == node.id)
        .where(node.uuid.in_(nodes), device.deleted == 0, device.status.in_(_PRESENT))
        .group_by(node.uuid, *kind)
    )
    return list(context.session.execute(statement))
