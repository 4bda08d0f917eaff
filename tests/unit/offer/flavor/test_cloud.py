"""Requests that never leave, because their path would be that of another resource."""

from __future__ import annotations

import pytest

from gpustack.base.errors import CloudError
from gpustack.offer.flavor.cloud import FlavorCloud


@pytest.mark.parametrize(("flavor_id", "key"), [("1", ".."), ("1", "."), ("..", "a")])
def test_dots_do_not_reach_another_resource(flavor_id: str, key: str) -> None:
    """Without this, the removal of the extra spec ``..`` would be a request to delete the flavor."""
    cloud = FlavorCloud.__new__(FlavorCloud)
    cloud._where = "http://nova/"
    with pytest.raises(CloudError, match="no part of an address"):
        cloud.unset_extra_spec(flavor_id, key)
