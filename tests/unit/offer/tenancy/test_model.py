"""The table of reserved hosts."""

from __future__ import annotations

from gpustack.cloud.compute import Hypervisor
from gpustack.nova_options.aggregates import Aggregate
from gpustack.offer.tenancy.model import MARK, Present, ReservedHost, reserved


def test_each_host_of_gpustacks_aggregates_has_a_row() -> None:
    metadata = {MARK: "CUSTOM_T", "filter_tenant_id": "b,a", "trait:CUSTOM_T": "required"}
    hosts = ("gpu1", "gpu2", "gpu3")
    present = Present(
        aggregates=(
            Aggregate(name="gpu", hosts=frozenset(hosts), metadata=metadata),
            Aggregate(name="az", hosts=frozenset(hosts)),
        ),
        nodes=tuple(Hypervisor(host=name, node=name, uuid=f"p-{name}") for name in hosts[:2]),
        bearers={"CUSTOM_T": frozenset({"p-gpu2"})},
        members={"gpu": frozenset({"p-gpu1"})},
    )
    assert [(row.host, row.isolated, row.bears_trait) for row in reserved(present)] == [
        ("gpu1", True, False),
        ("gpu2", False, True),
        ("gpu3", False, False),
    ]
    first = next(reserved(present))
    assert isinstance(first, ReservedHost)
    assert (first.aggregate, first.projects) == ("gpu", ("a", "b"))
