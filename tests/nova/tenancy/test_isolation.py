"""Which instances real Nova accepts on hosts that gpustack reserves, in each step and on the way back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gpustack_demo.embedded import servers
from support.clouds import NAMED
from support.tenancy_cloud import GPU_HOST, ORDINARY_HOST, SECONDS, TENANCY, Reserved

if TYPE_CHECKING:
    from openstack.compute.v2.server import Server


@pytest.mark.parametrize("cloud", [pytest.param(name, id=name) for name in NAMED], indirect=True)
def test_hosts_are_reserved_step_by_step_and_opened_again(cloud: Reserved) -> None:
    _before(cloud)
    ordinary, gpu = cloud.boot("admin", "ordinary", GPU_HOST), cloud.boot("teaching", "g1")
    assert cloud.host_of(ordinary) == cloud.host_of(gpu) == GPU_HOST
    spec = _reserved_in_order(cloud)
    _instances_that_stay(cloud, spec, ordinary, gpu)
    _who_is_accepted(cloud)
    _moves(cloud, ordinary, gpu)
    _opened_in_order(cloud)
    _undone(cloud)


def _before(cloud: Reserved) -> None:
    cloud.apply("flavor", cloud.spec())
    assert json.loads(cloud.run("tenancy", "show", "-f", "json").out) == []


def _reserved_in_order(cloud: Reserved) -> str:
    """Flavors need the trait on hosts first; isolation needs the trait in flavors first."""
    spec = cloud.spec(TENANCY)
    assert "GPU843" in cloud.apply("flavor", spec, code=13)
    assert cloud.operations(spec) == ["add_trait", "create_aggregate", "set_metadata", "add_host"]
    assert "GPU839" in cloud.apply("tenancy", spec)
    assert cloud.operations(spec) == []
    assert cloud.host_of(cloud.boot("research", "g1")) == GPU_HOST  # still open for instances without the trait
    cloud.apply("flavor", spec)
    assert cloud.operations(spec) == ["set_metadata"]
    cloud.apply("tenancy", spec)
    assert cloud.operations(spec, "--prune") == []
    return spec


def _instances_that_stay(cloud: Reserved, spec: str, ordinary: Server, gpu: Server) -> None:
    messages = cloud.run("tenancy", "plan", spec, "-f", "json")
    findings = json.loads(messages.out)["findings"]
    by_code = {code: [f["message"] for f in findings if f["code"] == code] for code in ("GPU841", "GPU842")}
    assert any(ordinary.id in text and "does not require the trait" in text for text in by_code["GPU841"])
    assert any(gpu.id in text and "other projects" in text for text in by_code["GPU841"])
    assert any(gpu.id in text for text in by_code["GPU842"])
    (shown,) = json.loads(cloud.run("tenancy", "show", "-f", "json").out)
    research = cloud.connections["research"].current_project_id
    assert (shown["Host"], shown["Projects"], shown["Isolated"], shown["Trait"]) == (GPU_HOST, [research], True, True)


def _who_is_accepted(cloud: Reserved) -> None:
    cloud.nova.control.restart_compute(GPU_HOST)  # it keeps the trait
    with cloud.only_gpu_host():
        private = cloud.private_flavor("g1", "research")
        assert cloud.differences(("g1", private.name, "ordinary")) == []
        assert {bool(projects) for projects in cloud.admissions().values()} == {True, False}
        cloud.admin.compute.delete_flavor(private)


def _moves(cloud: Reserved, ordinary: Server, gpu: Server) -> None:
    """An ordinary instance can leave; the GPU instance booted without the trait can't return after a shelve."""
    cloud.admin.compute.migrate_server(ordinary)
    moved = servers.until(cloud.admin, ordinary, lambda now: now.status == "VERIFY_RESIZE", seconds=SECONDS)
    cloud.admin.compute.confirm_server_resize(moved)
    servers.until(cloud.admin, ordinary, lambda now: now.status == "ACTIVE" and not now.task_state, seconds=SECONDS)
    assert cloud.host_of(ordinary) == ORDINARY_HOST
    cloud.admin.compute.migrate_server(ordinary, host=GPU_HOST)
    servers.until(cloud.admin, ordinary, lambda now: now.task_state is None, seconds=SECONDS)
    assert cloud.host_of(ordinary) == ORDINARY_HOST
    assert cloud.reclaim_step(gpu, "teaching") == ("nothing", ["GPU900"])
    cloud.admin.compute.shelve_server(gpu)
    servers.until(
        cloud.admin, gpu, lambda now: now.status == "SHELVED_OFFLOADED" and not now.task_state, seconds=SECONDS
    )
    cloud.admin.compute.unshelve_server(gpu)
    back = servers.until(cloud.admin, gpu, lambda now: now.task_state is None, seconds=SECONDS)
    assert back.status == "SHELVED_OFFLOADED"


def _opened_in_order(cloud: Reserved) -> None:
    """Flavors lose the trait after aggregates have; hosts lose it after flavors have."""
    spec = cloud.spec()
    assert "GPU844" in cloud.apply("flavor", spec, code=13)
    assert "GPU834" in cloud.apply("tenancy", spec, "--prune")
    assert cloud.host_of(cloud.boot("admin", "ordinary", GPU_HOST)) == GPU_HOST
    cloud.apply("flavor", spec)
    assert cloud.operations(spec, "--prune") == ["remove_trait", "delete_aggregate"]
    cloud.apply("tenancy", spec, "--prune")
    assert cloud.operations(spec, "--prune") == []
    assert list(cloud.admin.compute.aggregates()) == []
    assert cloud.host_of(cloud.boot("teaching", "g1")) == GPU_HOST


def _undone(cloud: Reserved) -> None:
    """Each of the three runs is a record; undoing them, last first, restores flavors, aggregates and traits exactly."""
    before = cloud.dump()
    spec = cloud.spec(TENANCY)
    for group in ("tenancy", "flavor", "tenancy"):
        cloud.apply(group, spec)
    assert cloud.dump() != before
    made = json.loads(cloud.run("history", "-f", "json").out)[:3]
    assert [(entry["Command"], entry["State"]) for entry in made] == [
        ("tenancy apply", "done"),
        ("flavor apply", "done"),
        ("tenancy apply", "done"),
    ]
    for entry in made:
        ran = cloud.run("undo", entry["ID"], "--yes")
        assert ran.code == 0, ran
    assert cloud.dump() == before
    shown = json.loads(cloud.run("history", "-f", "json").out)
    assert [entry["State"] for entry in shown if entry["ID"] in {one["ID"] for one in made}] == ["undone"] * 3
    assert "gpustack-lock" not in {aggregate.name for aggregate in cloud.admin.compute.aggregates()}
