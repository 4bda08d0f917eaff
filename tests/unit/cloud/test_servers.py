"""The instances of Nova: pages, few rights, cells that do not answer."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.base.errors import CloudError
from gpustack.cloud import servers as nova
from support.fleet_cloud import Answer, StandIn, instance, servers

ALL = "compute /servers/detail?all_tenants=1"


def test_an_instance_with_its_devices_and_times() -> None:
    cloud = StandIn({ALL: servers(instance("vm1"), instance("vm2", None, status="SHELVED_OFFLOADED"))})
    listing = nova.listing(cloud.connection)
    first, second = listing.servers
    assert (first.host, first.devices, first.flavor, f"{first.since}") == (
        "gpu1",
        {"k4200": 1},
        "g1",
        "2026-01-02 03:04:05",
    )
    assert (second.host, second.placed, second.moving) == ("", False, False)
    assert (listing.everything, listing.gaps) == (True, ())


def test_pages() -> None:
    more = {"servers_links": [{"rel": "next", "href": "…"}]}
    cloud = StandIn(
        {
            ALL: (200, {"servers": [instance("vm1")], **more}),
            f"{ALL}&soft_deleted=1&limit=1000&marker=vm1": servers(instance("vm2")),
        }
    )
    assert [server.id for server in nova.listing(cloud.connection).servers] == ["vm1", "vm2"]
    assert len(cloud.requests) == 2


def test_pages_that_begin_again_end_the_listing() -> None:
    cloud = StandIn({ALL: (200, {"servers": [instance("vm1")], "servers_links": [{"rel": "next", "href": "…"}]})})
    with pytest.raises(CloudError, match="not as the API documents it"):
        nova.listing(cloud.connection)


def test_a_user_of_one_project_sees_its_instances() -> None:
    hidden = {name: value for name, value in instance("vm1").items() if not name.startswith("OS-EXT-SRV-ATTR")}
    cloud = StandIn({ALL: (403, {"forbidden": {"message": "no"}}), "compute /servers/detail?&": servers(hidden)})
    listing = nova.listing(cloud.connection)
    assert [(server.id, server.host, server.placed) for server in listing.servers] == [("vm1", "", True)]
    assert not listing.everything
    assert len(listing.gaps) == 2


def test_a_silent_cell_and_hidden_extra_specs_are_gaps() -> None:
    silent = {"id": "vm3", "status": "UNKNOWN", "tenant_id": "p1", "created": "2026-01-02T03:04:05Z", "links": []}
    plain = instance("vm4", flavor={"original_name": "g1"})
    cloud = StandIn({ALL: servers(instance("vm1"), silent, plain)})
    reasons = nova.listing(cloud.connection).gaps
    assert ["cell" in reasons[0], "extra specs" in reasons[1], len(reasons)] == [True, True, 2]


@pytest.mark.parametrize("answer", [(500, {}), (200, {}), (200, {"servers": 1}), (200, {"servers": [{"flavor": {}}]})])
def test_answers_that_are_not_of_nova(answer: Answer) -> None:
    with pytest.raises(CloudError):
        nova.listing(StandIn({ALL: answer}).connection)


def test_migrations_are_searched_until_all_are_found() -> None:
    entry = {"uuid": "move1", "instance_uuid": "vm1", "status": "done"}
    more = {"migrations_links": [{"rel": "next", "href": "…"}]}
    other = {"uuid": "move2", "instance_uuid": "vm2", "status": "done"}
    cloud = StandIn(
        {
            "compute /os-migrations?": (200, {"migrations": [entry], **more}),
            "compute /os-migrations?&limit=1000&marker=move1": (200, {"migrations": [other], **more}),
            "compute /os-migrations?&limit=1000&marker=move2": (200, {"migrations": []}),
        }
    )
    assert nova.instances_of(cloud.connection, ["move1"]) == {"move1": "vm1"}
    assert len(cloud.requests) == 1
    assert nova.instances_of(cloud.connection, ["move2", "stranger"]) == {"move2": "vm2"}
    assert nova.instances_of(cloud.connection, []) == {}
    assert len(cloud.requests) == 4


def test_soft_deleted_instances_are_listed_too() -> None:
    cloud = StandIn({ALL: servers(instance("vm1", status="SOFT_DELETED"))})
    (vm,) = nova.listing(cloud.connection).servers
    assert (vm.status, vm.placed, vm.count) == ("SOFT_DELETED", True, 1)
    assert "&soft_deleted=1&" in cloud.requests[0]  # Nova hides them otherwise


@pytest.mark.parametrize(
    ("entry", "placed", "power", "image", "root", "lost"),
    [
        pytest.param(
            {"hostId": "5f4e", "OS-EXT-SRV-ATTR:host": None, "OS-EXT-STS:power_state": 4, "image": {"id": "i"}},
            *(True, 4, True, 20, ("ephemeral disk of 5 GiB", "swap disk of 512 MiB")),
            id="a user sees no host",
        ),
        pytest.param(
            {"hostId": "", "OS-EXT-SRV-ATTR:host": "gpu1", "OS-EXT-STS:power_state": None, "image": ""},
            *(True, 0, False, 20, ("ephemeral disk of 5 GiB", "swap disk of 512 MiB")),
            id="booted from a volume",
        ),
        pytest.param(
            {"hostId": "", "OS-EXT-SRV-ATTR:host": None, "flavor": {"disk": None, "ephemeral": 0, "swap": 0}},
            *(False, 0, False, 0, ()),
            id="not placed",
        ),
    ],
)
def test_place_and_disks_of_an_instance(
    entry: dict[str, Any], placed: bool, power: int, image: bool, root: int, lost: tuple[str, ...]
) -> None:
    flavor = {"original_name": "g1", "extra_specs": {}, "disk": 20, "ephemeral": 5, "swap": 512}
    cloud = StandIn({ALL: servers({**instance("vm1"), "flavor": flavor, **entry})})
    (found,) = nova.listing(cloud.connection).servers
    assert (found.placed, found.power, found.disks) == (placed, power, nova.Disks(image=image, root=root, lost=lost))


FLAVOR = {
    "original_name": "g1.two",
    "extra_specs": {
        "pci_passthrough:alias": "k4200:2",
        "resources:VGPU": "1",
        "resources1:VGPU": "2",
        "resources:CUSTOM_A16": "many",
        "trait:CUSTOM_A": "required",
        "accel:device_profile": "fpga",
    },
}
ENTRY: dict[str, Any] = {
    "id": "vm",
    "name": "web",
    "tenant_id": "p1",
    "user_id": "u1",
    "OS-EXT-SRV-ATTR:host": "gpu1",
    "OS-EXT-SRV-ATTR:hypervisor_hostname": "gpu1.example.org",
    "status": "ACTIVE",
    "flavor": FLAVOR,
    "OS-SRV-USG:launched_at": "2026-01-02T05:04:05+02:00",
    "OS-EXT-STS:power_state": 1,
    "locked": True,
    "metadata": {"tries": 3},
}


def test_each_field_of_an_instance() -> None:
    found = nova.server_of(ENTRY)
    assert (found.id, found.name, found.project, found.user) == ("vm", "web", "p1", "u1")
    assert (found.host, found.node, found.place) == ("gpu1", "gpu1.example.org", "gpu1.example.org")
    assert (found.flavor, found.devices, found.classes) == ("g1.two", {"k4200": 2}, {"VGPU": 3})
    assert found.demands == ("k4200", "VGPU", "CUSTOM_A16", "fpga")
    assert found.traits == {"CUSTOM_A"}
    assert f"{found.since}" == "2026-01-02 03:04:05"
    assert (found.status, found.task, found.moving, found.power) == ("ACTIVE", "", False, 1)
    assert (found.locked, found.metadata) == (True, {"tries": "3"})


def test_an_instance_of_which_nova_says_little() -> None:
    found = nova.server_of({"id": "vm", "name": None, "tenant_id": None, "user_id": None, "flavor": None})
    assert found == nova.Server(id="vm", placed=False, power=0, disks=nova.Disks(image=False))


@pytest.mark.parametrize(
    ("status", "task", "moving"),
    [
        ("ACTIVE", None, False),
        ("ACTIVE", "migrating", True),
        ("VERIFY_RESIZE", None, True),
        ("SHUTOFF", "", False),
    ],
)
def test_an_instance_moves_while_it_has_a_task_or_waits_for_its_confirmation(
    status: str, task: str | None, moving: bool
) -> None:
    found = nova.server_of({**ENTRY, "status": status, "OS-EXT-STS:task_state": task})
    assert (found.moving, found.task) == (moving, task or "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02 03:04:05"),
        ("2026-01-02T03:04:05", "2026-01-02 03:04:05"),
        ("2026-01-02T03:04:05-01:00", "2026-01-02 04:04:05"),
        ("soon", "None"),
        (None, "None"),
    ],
)
def test_times_of_the_api_are_utc(text: str | None, expected: str) -> None:
    assert str(nova.moment(text)) == expected


def test_migrations_of_an_instance() -> None:
    whole = {
        "uuid": "m1",
        "instance_uuid": "vm1",
        "migration_type": "resize",
        "status": "finished",
        "source_compute": "gpu1",
        "dest_compute": "gpu2",
        "created_at": "2026-01-02T03:04:05",
    }
    bare = {"uuid": "m2", "instance_uuid": "vm1", "status": "error", "source_compute": None, "dest_compute": None}
    path = "compute /os-migrations?instance_uuid=vm1"
    cloud = StandIn({path: (200, {"migrations": [whole, {**bare, "migration_type": None}]})})
    first, second = nova.moves(cloud.connection, "vm1")
    assert (first.what, first.source, first.target, f"{first.at}") == (
        "resize: finished",
        "gpu1",
        "gpu2",
        "2026-01-02 03:04:05",
    )
    assert (second.what, second.source, second.target, second.at) == ("migration: error", "", "", None)


def test_the_search_for_migrations_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nova, "_PAGES", 2)
    more = {"migrations_links": [{"rel": "next", "href": "…"}]}
    entries = [{"uuid": f"m{number}", "instance_uuid": "vm", "status": "done"} for number in range(9)]
    cloud = StandIn(
        {
            "compute /os-migrations?": (200, {"migrations": entries[:1], **more}),
            **{
                f"compute /os-migrations?&limit=1000&marker=m{number}": (
                    200,
                    {"migrations": [entries[number + 1]], **more},
                )
                for number in range(8)
            },
        }
    )
    assert nova.instances_of(cloud.connection, ["m8"]) == {}
    assert len(cloud.requests) == 3


@pytest.mark.parametrize(
    ("status", "unfinished"), [("running", True), ("finished", False), ("Error", False), ("of a later Nova", True)]
)
def test_a_migration_is_unfinished_unless_nova_calls_it_over(status: str, unfinished: bool) -> None:
    move = nova.Migration(uuid="m", server="vm", kind="migration", status=status, source="a", target="b")
    assert move.unfinished is unfinished
