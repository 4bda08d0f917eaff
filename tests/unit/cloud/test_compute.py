"""Host aggregates as Nova lists them."""

from __future__ import annotations

import pytest

from gpustack.base.errors import CloudError
from gpustack.cloud.compute import aggregates
from gpustack.nova_options.aggregates import Aggregate
from support.fleet_cloud import StandIn


def test_aggregates_have_their_hosts_and_metadata() -> None:
    entries = [
        {"name": "racks", "hosts": ["GPU1"], "metadata": {"rack": "a"}},
        {"name": "b", "hosts": [], "metadata": None},
    ]
    cloud = StandIn({"compute /os-aggregates": (200, {"aggregates": entries})})
    assert aggregates(cloud.connection) == [
        Aggregate(name="racks", hosts=frozenset({"GPU1"}), metadata={"rack": "a"}),
        Aggregate(name="b", hosts=frozenset()),
    ]
    for answer in ((403, {}), (200, {"aggregates": [{}]})):
        with pytest.raises(CloudError, match="can't list aggregates"):
            aggregates(StandIn({"compute /os-aggregates": answer}).connection)
