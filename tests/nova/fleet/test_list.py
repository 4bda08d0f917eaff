"""Who uses which GPU, on real Nova and Placement, with a real Keystone in one of the clouds."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import openstack.connection
import pytest
from openstack.config import loader

from gpustack.fleet import placement
from gpustack.hosts.facts.store import save_snapshot
from gpustack.operate.capacity.model import Demand
from gpustack.operate.capacity.read import accepted, rooms
from gpustack_demo.embedded import servers
from gpustack_demo.embedded.hosts import gpus
from gpustack_demo.embedded.process import free_port
from support.by_hand import leave, replace_provider
from support.clouds import NAMED, nova_conf
from support.cloudworld import World
from support.fleet_answers import facts
from support.fleet_runs import changed, counted, execute, listed, questions, run, states
from support.metric_samples import labels, samples
from support.outage_runs import Outage
from support.page import Page
from support.prometheus_programs import check_metrics
from support.reclaim_runs import Reclaim
from support.vgpu_cards import CARDS, DEVICES

NEWEST = NAMED[-1]
PLACED = pytest.mark.parametrize("cloud", [pytest.param((NEWEST, True), id=f"{NEWEST}-placement")], indirect=True)
KEYSTONE = pytest.mark.parametrize(
    "cloud", [pytest.param((NAMED[0], True, "keystone"), id=f"{NAMED[0]}-keystone")], indirect=True
)
PLAIN = pytest.mark.parametrize("cloud", [pytest.param((NAMED[0], False), id=NAMED[0])], indirect=True)
SPEC = """
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {gpu1: [k4200]}
nova: {release: "RELEASE", placement: schedule}
flavors: {small: {model: k4200, vcpus: 1, ram: 64MiB, disk: 0}}
"""
FIRST, SECOND = "0000:81:00.0", "0000:82:00.0"
_LIMIT, _STRATEGY = (
    f"placement/{name}" for name in ("max_allocation_candidates", "allocation_candidates_generation_strategy")
)


def reserve(world: World, host: str, address: str) -> None:
    """Take a GPU out of service, as an operator does."""
    providers = world.api.placement.get("/resource_providers", microversion="1.31").json()["resource_providers"]
    (uuid,) = (entry["uuid"] for entry in providers if entry["name"] == f"{host}_{address}")
    path = f"/resource_providers/{uuid}/inventories"
    inventories = world.api.placement.get(path, microversion="1.31").json()
    for inventory in inventories["inventories"].values():
        inventory["reserved"] = inventory["total"]
    assert world.api.placement.put(path, json=inventories, microversion="1.31").ok


@PLACED
def test_states_and_holders_with_few_requests(world: World, tmp_path: Path) -> None:
    (host,) = world.hosts(1, gpus(4))
    server = world.boot(host, 2)
    (spare, reserved) = sorted(gpu["address"] for gpu in listed(world)[0] if gpu["state"] == "free")
    reserve(world, host, reserved)
    found, messages = listed(world)
    assert (len(found), messages) == (4, "")
    held = [gpu for gpu in found if gpu["state"] == "allocated"]
    assert [(gpu["server"], gpu["flavor"], gpu["status"]) for gpu in held] == [(server.id, "gpu2", "ACTIVE")] * 2
    assert sorted(gpu["address"] for gpu in held) == sorted(world.nova.control.hostdevs(server.id)[host])
    assert held[0]["since"] == f"{str(server.launched_at)[:19]}Z"
    assert states(found)[host, reserved] == "reserved"
    assert states(found)[host, spare] == "free"
    world.state(server, "stop", "SHUTOFF")
    assert [gpu["status"] for gpu in listed(world, "--state", "allocated")[0]] == ["SHUTOFF"] * 2

    with counted(world, tmp_path / "clouds.yaml") as (clouds, traffic):
        assert run(clouds, "list", "--group-by", "host").code == 0
        summary = questions(traffic)
        traffic.calm()
        assert run(clouds, "list", "--group-by", "project").code == 0
        by_project = questions(traffic)
        traffic.calm()
        assert run(clouds, "list").code == 0
        complete = questions(traffic)
    assert len(summary) == 5, summary  # Placement twice, the services, the compute nodes, and the instances
    projects = [line for line in by_project if "/projects" in line]  # there is no Keystone to answer
    assert len(by_project) - len(projects) == 5, by_project
    names = [line for line in complete if "/projects" in line or "/users" in line]
    assert len(complete) - len(names) == 6, complete  # and one for each instance with GPUs

    servers.force_down(world.api, host)
    found, messages = listed(world)
    assert {gpu["service"] for gpu in found} == {"down"}
    assert f"nova-compute is down, which no new instance gets: 1 on {host}" in messages


@PLACED
def test_a_gpu_that_placement_lacks_is_not_free(world: World) -> None:
    (host,) = world.hosts(1)
    server = world.boot(host)
    (used,) = world.nova.control.hostdevs(server.id)[host]
    spare = FIRST if used == SECOND else SECOND
    (provider,) = world.api.placement.resource_providers(name=f"{host}_{spare}")
    world.api.placement.delete_resource_provider(provider)
    found, messages = listed(world, "--config-file", str(world.nova.nova_conf))
    assert states(found) == {(host, used): "allocated", (host, spare): "inconsistent"}
    assert f"GPU710 {host} {spare}" in messages
    assert world.boot(host).status == "ERROR"  # Nova does not offer it
    # nova-compute keeps the provider in its cache, and creates it again after a start.
    world.nova.control.restart_compute(host)
    world.nova.control.periodic(host)
    found, messages = listed(world, "--config-file", str(world.nova.nova_conf))
    assert (states(found)[host, spare], "GPU710" in messages) == ("free", False)


@PLACED
def test_limited_candidates_and_full_hosts_change_no_answer(world: World) -> None:
    """The full hosts have no memory, processors or disk: one has a free GPU, and one none."""
    hosts, api = world.hosts(3), world.api
    world.boot(hosts[0])
    world.boot(hosts[1], 2)
    roots = {provider.name: provider.id for provider in api.placement.resource_providers()}
    nodes = [roots[name] for name in hosts]
    demand = Demand(flavor="f", gpus={}, amounts={"VCPU": 1, "MEMORY_MB": 64}, vcpus=1, ram=64)

    def devices() -> list[placement.Device]:
        """Those of the test's hosts: others have their own."""
        return [device for device in placement.devices(api) or () if device.root in nodes]

    def accepting() -> set[str]:
        return {node for node in accepted(api, demand, nodes) if node in nodes}

    def answers() -> tuple[object, ...]:
        found = rooms(api, nodes)
        return devices(), {node: found.amounts[node] for node in nodes}, accepting()

    expected = answers()
    assert (len(devices()), accepting()) == (6, set(nodes))
    for options in ({_LIMIT: "1"}, {_LIMIT: "2", _STRATEGY: "breadth-first"}):
        world.nova.control.configure_placement(options)
        try:
            assert answers() == expected
        finally:
            world.nova.control.configure_placement(dict.fromkeys(options))
    with contextlib.ExitStack() as kept:
        for name in hosts[:2]:
            kept.enter_context(_full(world, roots[name]))
        assert devices() == expected[0]
        assert accepting() == {roots[hosts[2]]}


@contextlib.contextmanager
def _full(world: World, root: str) -> Iterator[None]:
    """A compute node whose processors, memory and disk are all taken."""
    path = f"/resource_providers/{root}/inventories"
    before = world.api.placement.get(path).json()["inventories"]

    def write(inventories: dict[str, dict[str, Any]]) -> None:
        current = world.api.placement.get(path).json()
        body = {**current, "inventories": inventories}
        assert world.api.placement.put(path, json=body, microversion="1.26").ok

    write({name: {**entry, "reserved": entry["total"]} for name, entry in before.items()})
    try:
        yield
    finally:
        write(before)


@PLACED
def test_an_evacuated_instance_holds_gpus_of_both_hosts(world: World) -> None:
    source, target = world.hosts(2)
    server = world.boot(source)
    world.die(source)
    world.evacuate(server, target)
    found, messages = listed(world)
    held = sorted((gpu["host"], gpu["state"]) for gpu in found if gpu["server"] == server.id)
    assert {host for host, _state in held} == {source, target}
    assert ("GPU702 " + source in messages, {state for host, state in held if host == source}) == (
        True,
        {"inconsistent"},
    )
    assert f"nova-compute is down, which no new instance gets: 1 on {source}" in messages
    world.back(source)
    assert {gpu["state"] for gpu in listed(world, "--host", source)[0] if gpu["host"] == source} == {"free"}


@PLACED
def test_page_has_each_gpu_with_its_instance_and_what_still_fits(world: World, tmp_path: Path) -> None:
    (host,) = world.hosts(1, gpus(3))
    server = world.boot(host)
    (address,) = world.nova.control.hostdevs(server.id)[host]
    spec = tmp_path / "gpustack.yaml"
    spec.write_text(SPEC.replace("RELEASE", NEWEST).replace("gpu1", host), encoding="utf-8")
    with counted(world, tmp_path / "clouds.yaml") as (clouds, traffic):
        ran = execute(clouds, "report", "--out", str(tmp_path), "--spec", str(spec))
    assert ran.code == 0, ran
    assert questions(traffic).count("GET /resource_providers") == 1
    for request in ("/servers/detail", "/os-services"):
        assert [request in line for line in questions(traffic)].count(True) == 1, request
    page = Page((tmp_path / "index.html").read_text(encoding="utf-8"))
    assert page.problems() == []
    rows = [["".join(cell.itertext()) for cell in row] for row in page.find(".//details/table/tbody/tr")]
    assert [row[1].strip() for row in rows if row[2].startswith(server.name) and row[0].startswith(address)] == [
        "allocated"
    ]
    ran = execute(world.nova.clouds_yaml, "capacity", str(spec), "-f", "json")
    assert ran.code == 0, ran
    (capacity,) = json.loads(ran.out)
    (row,) = page.find(".//*[@id='capacity']/table/tbody/tr")
    assert ["".join(cell.itertext()) for cell in row][1:3] == [str(capacity["least"]), str(capacity["free_gpus"])]
    assert capacity["least"] >= 2


@PLACED
def test_a_move_holds_both_ends(world: World) -> None:
    source, target = world.hosts(2)
    server = world.boot(source)
    world.migrate(server, target)
    found, messages = listed(world)
    assert "GPU70" not in messages
    held = {(gpu["host"], gpu["holders"][0]["migration"]) for gpu in found if gpu["holders"]}
    assert {(source, True), (target, False)} <= held
    assert {gpu["server"] for gpu in found if gpu["holders"]} == {server.id}
    world.confirm(server)
    world.nova.control.periodic(source)
    assert {gpu["state"] for gpu in listed(world)[0] if gpu["host"] == source} == {"free"}


@PLACED
def test_a_phantom_allocation_names_class_s(world: World) -> None:
    (host,) = world.hosts(1)
    server = world.boot(host)
    leave(world, server, host)
    found, messages = listed(world)
    assert set(states(found).values()) == {"inconsistent"}
    assert "GPU701" in messages
    assert "class S (phantom-allocation)" in messages
    # The row decides which of them the instance uses.
    (used,) = world.nova.control.hostdevs(server.id)[host]
    found, messages = listed(world, "--config-file", str(world.nova.nova_conf))
    expected = {(host, address): "allocated" if address == used else "inconsistent" for address in (FIRST, SECOND)}
    assert states(found) == expected
    assert "class S (phantom-allocation)" in messages


@PLACED
def test_the_story_of_a_gpu(world: World) -> None:
    source, target = world.hosts(2)
    server = world.boot(source)
    server = world.confirm(world.migrate(server, target))
    (address,) = world.nova.control.hostdevs(server.id)[target]
    ran = run(world.nova.clouds_yaml, "show", target, address, "-f", "json")
    assert ran.code == 0, ran
    story = json.loads(ran.out)
    assert (story["model"], story["state"], story["memory"]) == ("NVIDIA Quadro K4200", story["state"], "4 GiB")
    assert server.id in [holder["server"] for holder in story["holders"]]
    events = [event["event"] for event in story["history"]]
    assert "create" in events
    assert "migration: confirmed" in events
    (move,) = (event for event in story["history"] if event["event"] == "migration: confirmed")
    assert (move["source"], move["target"]) == (source, target)
    text = run(world.nova.clouds_yaml, "show", target, address).out
    assert f"{source} → {target}" in text
    assert run(world.nova.clouds_yaml, "show", target, "0000:99:00.0").code == 2


@PLACED
def test_a_dead_placement_and_a_dead_nova_are_partial(world: World, tmp_path: Path) -> None:
    (host,) = world.hosts(1)
    server = world.boot(host)
    dead = f"http://127.0.0.1:{free_port()}"
    clouds = changed(world, tmp_path / "placement.yaml", placement_endpoint_override=dead)
    ran = run(clouds, "list", "--host", host, "-f", "json")
    assert (ran.code, [(gpu["address"], gpu["server"]) for gpu in json.loads(ran.out)]) == (23, [(None, server.id)])
    assert "partial: Placement: " in ran.err
    clouds = changed(world, tmp_path / "nova.yaml", compute_endpoint_override=f"{dead}/v2.1")
    ran = run(clouds, "list", "--host", host, "-f", "json")
    found = json.loads(ran.out)
    assert (ran.code, sorted(states(found).values())) == (23, ["allocated", "free"])
    assert {gpu["server"] for gpu in found} == {None}
    clouds = changed(world, tmp_path / "both.yaml", compute_endpoint_override=dead, placement_endpoint_override=dead)
    assert run(clouds, "list").code == 21
    ran = run(clouds, "list", "--host", host, "-f", "json", "--config-file", str(world.nova.nova_conf))
    assert (ran.code, sorted(states(json.loads(ran.out)).values())) == (23, ["allocated", "free"])


@PLACED
def test_the_commands_of_the_guide(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (host,) = world.hosts(1)
    world.boot(host)
    page = (Path(__file__).parents[3] / "docs/howto/see-who-uses-what.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\$ gpustack (gpu .+?)(?: > .+)?$", page, re.MULTILINE)
    save_snapshot(tmp_path / "hosts.json", [facts(host, 0x81, 0x82).model_dump(by_alias=True)])
    monkeypatch.chdir(tmp_path)
    replaced = {"gpu01": host, "/etc/nova/nova.conf": str(world.nova.nova_conf)}
    for command in commands:
        ran = run(world.nova.clouds_yaml, *(replaced.get(word, word) for word in command.split()[1:]))
        assert ran.code == 0, (command, ran)
        assert not re.search(rf"GPU70\d {host}\b", ran.err), (command, ran)
    assert len(commands) == 11


@PLACED
def test_prometheus_gets_the_same_gpus(world: World, tmp_path: Path) -> None:
    (host,) = world.hosts(1)
    server = world.boot(host)
    (used,) = world.nova.control.hostdevs(server.id)[host]
    free = SECOND if used == FIRST else FIRST
    path = tmp_path / "gpus.prom"
    spec = tmp_path / "gpustack.yaml"
    spec.write_text(SPEC.replace("RELEASE", NEWEST))
    watch = ("watch", "--textfile", str(path), "--once", "--spec", str(spec))
    ran = run(world.nova.clouds_yaml, *watch)
    assert ran.code == 0, ran
    text = path.read_text(encoding="utf-8")
    check_metrics(text)
    free_gpus = sum(value for key, value in samples(text, "gpustack_gpus").items() if ("state", "free") in key)
    small = samples(text, "gpustack_flavor_free")[labels(flavor="small")]
    assert (
        1 <= small <= free_gpus
    )  # hosts of other tests are off: their GPUs are free, their services are or become down
    present = samples(text, "gpustack_gpu_state")
    assert present[labels(hostname=host, address=used, state="allocated")] == 1
    assert present[labels(hostname=host, address=free, state="free")] == 1
    place = {"hostname": host, "address": used, "server_id": server.id}
    owner = {"tenant_id": server.project_id, "user_id": server.user_id, "flavor": "gpu1"}
    assert samples(text, "gpustack_gpu_allocated_info")[labels(**place, **owner)] == 1
    since = samples(text, "gpustack_gpu_allocated_since_timestamp_seconds")[labels(**place)]
    assert int(since) == datetime.fromisoformat(f"{str(server.launched_at)[:19]}+00:00").timestamp()

    clouds = changed(world, tmp_path / "clouds.yaml", placement_endpoint_override=f"http://127.0.0.1:{free_port()}")
    assert run(clouds, *watch).code == 23
    text = path.read_text(encoding="utf-8")
    success = {dict(key)["source"]: value for key, value in samples(text, "gpustack_collect_success").items()}
    assert success == {"nova": 1, "placement": 0, "capacity": 0}
    uncertain = ("gpustack_gpus", "gpustack_tenant_gpus", "gpustack_flavor_free")
    assert [name for name in uncertain if samples(text, name)] == []


@PLAIN
def test_without_placement_hosts_and_with_the_databases_gpus(world: World) -> None:
    (host, empty) = world.hosts(2)
    server = world.boot(host)
    found, messages = listed(world)
    assert [(gpu["host"], gpu["address"], gpu["server"]) for gpu in found] == [(host, None, server.id)]
    assert "--config-file" in messages
    assert "partial" in listed(world, "--state", "free", code=23)[1]
    (group,) = listed(world, "--group-by", "host")[0]
    assert (group["Host"], group["GPUs"], group["Free"], group["Allocated"]) == (host, None, None, 1)

    found, messages = listed(world, "--config-file", str(world.nova.nova_conf))
    (used,) = world.nova.control.hostdevs(server.id)[host]
    other = SECOND if used == FIRST else FIRST
    assert states(found) == {
        (host, used): "allocated",
        (host, other): "free",
        (empty, FIRST): "free",
        (empty, SECOND): "free",
    }
    (gpu,) = (gpu for gpu in found if gpu["server"])
    assert (gpu["server"], gpu["project"], gpu["flavor"]) == (server.id, server.project_id, "gpu1")
    assert gpu["since"] == f"{str(server.launched_at)[:19]}Z"
    servers.force_down(world.api, empty)
    messages = listed(world, "--config-file", str(world.nova.nova_conf))[1]
    assert f"nova-compute is down, which no new instance gets: 2 on {empty}" in messages
    # A live migration claims, and a pulled card makes its row unavailable.
    world.sql("UPDATE pci_devices SET status = 'claimed' WHERE instance_uuid = :vm", vm=server.id)
    found = listed(world, "--config-file", str(world.nova.nova_conf), "--instance", server.name)[0]
    assert [gpu["state"] for gpu in found] == ["claimed"]
    world.sql("UPDATE pci_devices SET status = 'allocated' WHERE instance_uuid = :vm", vm=server.id)


def out_and_back(world: World, release: str, directory: Path, *, keystone: bool = False) -> None:
    """A GPU leaves service under an instance, and comes back.

    :param keystone: with a token, a hard reboot copies disks, which the stand-in for libvirt does not have.
    """
    (host,) = world.hosts(1)
    desk = Outage(world, host, release, directory)
    server = world.boot(host)
    (sick,) = world.nova.control.hostdevs(server.id)[host]
    sound = SECOND if sick == FIRST else FIRST
    plan = desk.plan("disable", sick)
    assert [operation["kind"] for operation in plan["operations"]] == ["set_inventory"]
    assert {finding["code"] for finding in plan["findings"]} == {"GPU757", "GPU758"}
    assert not any(gpu["reserved"] for gpu in listed(world)[0])  # a dry run

    ran = desk.gpu("disable", sick, "--yes")
    assert ran.code == 0, ran
    assert f"{server.name} ({server.id}, ACTIVE) has the GPU" in ran.err
    assert {gpu["address"]: gpu["reserved"] for gpu in listed(world)[0]} == {sick: True, sound: False}
    assert desk.plan("disable", sick)["operations"] == []
    world.nova.control.periodic(host)
    if not keystone:
        server = world.state(server, "reboot", "ACTIVE")
    assert world.nova.control.hostdevs(server.id)[host] == [sick]
    world.drop(server)
    world.nova.control.periodic(host)
    assert states(listed(world)[0]) == {(host, sick): "reserved", (host, sound): "free"}
    beside = world.boot(host)
    assert world.nova.control.hostdevs(beside.id)[host] == [sound]
    assert world.boot(host).status == "ERROR"

    desk.write(plan["spec"])
    (gpu,) = listed(world, "--spec", str(desk.spec), "--state", "reserved")[0]
    assert (gpu["address"], gpu["out_of_service"][:16]) == (sick, "fatal AER errors")
    replace_provider(world, host, sick)
    assert f"GPU760 {host} {sick}" in listed(world, "--spec", str(desk.spec))[1]
    assert desk.gpu("disable", sick, "--yes").code == 0
    assert f"GPU760 {host} {sick}" not in listed(world, "--spec", str(desk.spec))[1]
    (line,) = desk.restart()
    assert sound in line
    ran = desk.gpu("disable", sick)
    assert (ran.code, f"{host} {sick}: out of service: Nova does not have the GPU" in ran.out) == (0, True), ran
    assert sick not in {gpu["address"] for gpu in listed(world)[0]}
    assert world.nova.control.hostdevs(beside.id)[host] == [sound]

    assert desk.gpu("enable", sick).code == 13  # the spec still has the entry
    desk.write("")
    assert len(desk.plan("enable", sick)["steps"]) == 3
    (line,) = desk.restart()
    assert sick not in line
    ran = desk.gpu("enable", sick, "--yes")
    assert (ran.code, f"{host} {sick}: free" in ran.out) == (0, True), ran
    back = world.boot(host)
    assert world.nova.control.hostdevs(back.id)[host] == [sick]

    # Still offered: released explicitly.
    assert desk.gpu("disable", sick, "--yes").code == 0
    world.drop(back)
    assert states(listed(world)[0])[host, sick] == "reserved"
    assert desk.gpu("enable", sick, "--yes").code == 0
    assert states(listed(world)[0])[host, sick] == "free"


@PLACED
def test_out_of_service_and_back_on_the_newest_release(world: World, tmp_path: Path) -> None:
    out_and_back(world, NEWEST, tmp_path)


@KEYSTONE
def test_out_of_service_and_back_on_the_oldest_release(world: World, tmp_path: Path) -> None:
    if NAMED[0] == "yoga":
        pytest.skip("Yoga has no PCI in Placement")
    out_and_back(world, NAMED[0], tmp_path, keystone=True)


@pytest.mark.parametrize(
    "cloud", [pytest.param((name, True), id=f"{name}-placement") for name in NAMED[1:-1]], indirect=True
)
def test_out_of_service_and_back_on_other_releases(
    world: World, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """With GPUSTACK_NOVA_RELEASES only."""
    out_and_back(world, request.node.callspec.params["cloud"][0], tmp_path)


@PLAIN
def test_without_placement_the_service_is_closed_until_the_restart(world: World, tmp_path: Path) -> None:
    (host,) = world.hosts(1)
    desk = Outage(world, host, NAMED[0], tmp_path)
    databases = ("--config-file", str(world.nova.nova_conf))
    server = world.boot(host)
    (used,) = world.nova.control.hostdevs(server.id)[host]
    sick = SECOND if used == FIRST else FIRST
    in_use = desk.plan("disable", used, *databases)
    assert [operation["kind"] for operation in in_use["operations"]] == ["switch_service"]
    assert {"GPU450", "GPU758"} <= {finding["code"] for finding in in_use["findings"]}
    ran = desk.gpu("disable", sick, "--yes", *databases)
    assert ran.code == 0, ran
    assert world.boot(host).status == "ERROR"
    (service,) = world.api.compute.services(host=host, binary="nova-compute")
    assert (service.status, service.disabled_reason) == (
        "disabled",
        f"gpustack: GPU {sick.removeprefix('0000:')} (fatal AER errors)",
    )
    desk.write(desk.plan("disable", sick, *databases)["spec"])
    (line,) = desk.restart()
    assert used in line
    assert world.nova.control.hostdevs(server.id)[host] == [used]
    ran = desk.gpu("disable", sick, "--yes", *databases)
    assert (ran.code, f"enable nova-compute of {host}" in ran.out) == (0, True), ran
    (service,) = world.api.compute.services(host=host, binary="nova-compute")
    assert service.status == "enabled"
    assert states(listed(world, *databases)[0]) == {(host, used): "allocated"}


@KEYSTONE
def test_names_and_few_rights(world: World, tmp_path: Path) -> None:
    (host,) = world.hosts(1)
    server = world.boot(host)
    (gpu,) = listed(world, "--state", "allocated")[0]
    assert (gpu["project_name"], gpu["user_name"]) == ("admin", "admin")
    assert listed(world, "--project", "admin")[0] == [gpu]
    program = Path(sys.executable).with_name("openstack")
    command = [str(program), "gpu", "list", "--host", host, "-f", "json"]
    ran = subprocess.run(command, env=world.nova.variables(), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert gpu in json.loads(ran.stdout)

    identity = world.api.identity
    project = identity.create_project(name="research", domain_id="default")
    user = identity.create_user(name="student", password="secret", default_project_id=project.id)
    (role,) = identity.roles(name="member")
    identity.assign_project_role_to_user(project, user, role)
    auth = {
        "auth_url": world.api.config.config["auth"]["auth_url"],
        "username": "student",
        "password": "secret",
        "project_name": "research",
        "user_domain_name": "Default",
        "project_domain_name": "Default",
    }
    clouds = changed(world, tmp_path / "clouds.yaml", auth=auth)
    ran = run(clouds, "list", "-f", "json")
    assert (ran.code, json.loads(ran.out)) == (23, []), ran
    assert server.id not in ran.out
    assert "partial: Placement: " in ran.err
    assert "partial: Nova: " in ran.err

    # Its own instance is shown, without the host; then the project is deleted.
    flavor = world.flavors[1]
    config = loader.OpenStackConfig(config_files=[str(clouds)], secure_files=[], vendor_files=[], load_envvars=False)
    with openstack.connection.Connection(config=config.get_one(cloud="embedded")) as own:
        mine = servers.boot(own, "mine", flavor)
    world.guests.append(mine)
    ran = run(clouds, "list", "-f", "json")
    assert (ran.code, [(gpu["host"], gpu["server"]) for gpu in json.loads(ran.out)]) == (23, [(None, mine.id)]), ran
    identity.unassign_project_role_from_user(project, user, role)
    identity.delete_project(project)
    found, messages = listed(world, "--instance", mine.id)
    assert [gpu["project_name"] for gpu in found] == [None]
    assert "GPU708" in messages


@KEYSTONE
def test_gpus_of_stopped_instances_are_freed_and_restored(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (host,) = world.hosts(1, gpus(3))
    keeps = f"{nova_conf(NAMED[0], placement=True)}\n[DEFAULT]\nshelved_offload_time = -1\n"
    (keeper,) = world.hosts(1, gpus(1), config=keeps)
    (shared,) = world.hosts(1, CARDS, nova_conf(NAMED[0], placement=True) + DEVICES)
    of_vgpu = world.api.compute.create_flavor(name="vgpu", ram=64, vcpus=1, disk=1)
    world.api.compute.create_flavor_extra_specs(of_vgpu, {"resources:VGPU": "1"})
    idle, running, locked = (world.boot(host) for _ in range(3))
    kept = world.boot(keeper)
    vgpu = servers.boot(world.api, "vgpu", of_vgpu, host=shared)
    world.guests.append(vgpu)
    for server in (idle, locked, kept, vgpu):
        world.state(server, "stop", "SHUTOFF")
    world.api.compute.lock_server(locked)
    reclaim = Reclaim(world, tmp_path)
    assert reclaim.steps() == {}
    reclaim.age(idle, locked, kept, vgpu)
    assert reclaim.steps()[idle.id] == ("nothing", ["GPU795"])  # booted from an image
    space = ("--snapshot-space", "3")
    blocked = {locked.id: ("nothing", ["GPU791"])}
    assert reclaim.steps(*space) == {**{server.id: ("notify", []) for server in (idle, kept, vgpu)}, **blocked}
    reclaim.guided("plan")
    reclaim.guided("notify", "--yes")
    assert reclaim.steps(*space) == {**{server.id: ("wait", []) for server in (idle, kept, vgpu)}, **blocked}
    reclaim.age(idle, kept, vgpu)
    reclaim.guided("apply", "--yes")

    # The GPU of the host that keeps shelved instances is free too.
    assert reclaim.statuses(idle, kept, vgpu) == ["SHELVED_OFFLOADED"] * 3
    assert reclaim.statuses(running, locked) == ["ACTIVE", "SHUTOFF"]
    assert world.allocations(idle) == world.allocations(kept) == world.allocations(vgpu) == {}
    free = [host, keeper, shared, shared]
    assert sorted(gpu["host"] for gpu in listed(world, "--state", "free")[0]) == sorted(free)
    assert [row[2] for row in world.rows(keeper)] == [None]
    new = world.boot(host)
    assert new.status == "ACTIVE", new.fault
    world.exclusive()

    # One GPU is left for two instances.
    assert "no host has free GPUs for it" in reclaim.guided("undo", "--yes", code=14)
    servers.delete(world.api, new)
    world.guests.remove(new)
    reclaim.guided("undo", "--yes")  # the other one is restored already
    assert reclaim.statuses(idle, kept, vgpu) == ["ACTIVE"] * 3
    assert [gpu["server"] for gpu in listed(world)[0] if gpu["host"] == shared and gpu["used"]] == [vgpu.id]
    world.exclusive()
    reclaim.guided("notify", "--yes")
    assert "gpustack:reclaim_at" not in world.api.compute.get_server(idle.id).metadata
    world.drop(vgpu)
    world.api.compute.delete_flavor(of_vgpu)
