"""The request of an instance as Nova keeps it. Nova's answers are made."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.base.errors import CloudError
from gpustack.cloud.boot import ServerGroup, boot, console_log, server_group
from support.fleet_cloud import StandIn

ENTRY: dict[str, Any] = {
    "id": "vm",
    "name": "vm",
    "status": "ERROR",
    "image": {"id": "i"},
    "flavor": {"original_name": "g1", "vcpus": 2, "ram": 512, "disk": 1, "swap": 64, "extra_specs": {"a": "b"}},
    "fault": {"message": "No valid\nhost", "created": "2026-11-24T14:02:00Z"},
    "pinned_availability_zone": None,
}


def test_a_request_has_the_embedded_flavor_and_the_fault() -> None:
    cloud = StandIn(answers={"compute /servers/vm": (200, {"server": ENTRY})})
    found = boot(cloud.connection, "vm")
    assert found is not None
    assert (found.flavor.sizes.vcpus, found.flavor.sizes.swap, found.flavor.extra_specs) == (2, 64, {"a": "b"})
    assert (found.flavor.id, found.flavor.name, found.flavor.sizes.ephemeral) == ("g1", "g1", 0)
    assert (found.fault, str(found.failed)) == ("No valid host", "2026-11-24 14:02:00")
    # This Nova, of 2.96, has the zone, and neither properties nor hints.
    assert (found.zone, found.image, found.hints) == ("", None, None)
    assert boot(cloud.connection, "other") is None


def test_hints_and_groups_are_those_of_a_newer_nova() -> None:
    more = {"scheduler_hints": {"group": ["g"], "query": "[]"}, "server_groups": ["g"]}
    cloud = StandIn(answers={"compute /servers/vm": (200, {"server": {**ENTRY, **more}})}, newest=(2, 100))
    found = boot(cloud.connection, "vm")
    assert found is not None
    assert found.image == {}
    assert (found.hints, found.groups) == ({"group": ("g",), "query": ("[]",)}, ("g",))


def test_properties_of_the_image_are_those_of_a_newer_nova() -> None:
    image = {"id": "i", "properties": {"hw_machine_type": "q35", "hw_numa_nodes": 2}}
    cloud = StandIn(answers={"compute /servers/vm": (200, {"server": {**ENTRY, "image": image}})}, newest=(2, 99))
    found = boot(cloud.connection, "vm")
    assert found is not None
    assert found.image == {"hw_machine_type": "q35", "hw_numa_nodes": "2"}


def test_a_server_group_has_its_rule_and_members() -> None:
    group = {"name": "g", "policy": "anti-affinity", "rules": {"max_server_per_host": 3}, "members": ["vm"]}
    cloud = StandIn(answers={"compute /os-server-groups/g": (200, {"server_group": group})})
    assert server_group(cloud.connection, "g") == ServerGroup(name="g", policy="anti-affinity", members=("vm",), most=3)
    assert server_group(cloud.connection, "other") is None
    cloud = StandIn(answers={"compute /os-server-groups/g": (200, {"server_group": {**group, "rules": {}}})})
    found = server_group(cloud.connection, "g")
    assert found is not None
    assert found.most == 1


def test_a_damaged_answer_is_an_error() -> None:
    cloud = StandIn(answers={"compute /servers/vm": (200, {"server": {**ENTRY, "flavor": 7}})})
    with pytest.raises(CloudError, match="can't read an instance"):
        boot(cloud.connection, "vm")


def test_a_console_log_is_text() -> None:
    cloud = StandIn(answers={"compute POST /servers/vm/action": (200, {"output": "Linux version 6"})})
    assert console_log(cloud.connection, "vm") == "Linux version 6"
    assert cloud.written == [{"os-getConsoleOutput": {"length": None}}]


@pytest.mark.parametrize(("image", "disk"), [({"id": "i"}, 10), ("", 0)])
def test_an_instance_with_a_root_volume_needs_no_root_disk(image: object, disk: int) -> None:
    """Nova shows no image then, and requests only its ephemeral and swap disks from Placement."""
    flavor = {**ENTRY["flavor"], "disk": 10, "ephemeral": 5}
    cloud = StandIn(answers={"compute /servers/vm": (200, {"server": {**ENTRY, "image": image, "flavor": flavor}})})
    found = boot(cloud.connection, "vm")
    assert found is not None
    assert (found.flavor.sizes.disk, found.flavor.sizes.ephemeral) == (disk, 5)
