"""Repeated reads of one change. A stand-in answers."""

from gpustack.cloud.reads import reading_once
from gpustack.cloud.session import get, request
from support.fleet_cloud import StandIn


def test_a_check_and_its_write_share_one_read() -> None:
    cloud = StandIn({"compute /things": (200, {"name": "a"}), "compute PUT /things": (200, {})})
    with reading_once():
        assert [get(cloud.connection, "compute", "/things/1", "read") for _ in "12"] == [{"name": "a"}] * 2
        get(cloud.connection, "compute", "/things/2", "read")
        request(cloud.connection, "compute", "PUT", "/things/1", "write", body={})
        for _ in "12":  # after a write, each read is a new one
            get(cloud.connection, "compute", "/things/1", "read")
    get(cloud.connection, "compute", "/things/1", "read")
    with reading_once():
        get(cloud.connection, "compute", "/things/3", "read")
    get(cloud.connection, "compute", "/things/3", "read")
    paths = [line.rpartition("/")[2] for line in cloud.requests]
    assert paths == ["1", "2", "1", "1", "1", "1", "3", "3"]
