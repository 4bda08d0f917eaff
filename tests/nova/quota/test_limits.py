"""What real Nova enforces of the limits that gpustack writes to a real Keystone (gpustack/data/enforcement.toml)."""

from __future__ import annotations

import os

import pytest
from openstack.exceptions import ForbiddenException

from gpustack_demo.embedded import servers
from support.clouds import NAMED
from support.metric_samples import samples
from support.quota_cloud import SECONDS, QuotaWorld, data

NEWEST = NAMED[-1]
BY_RELEASE = [pytest.param((name, "schedule" if name == NEWEST else "off"), id=name) for name in NAMED]
"""Every release, the newest one with PCI in Placement."""
PLACED = [
    pytest.param((name, "schedule"), id=name if name == NEWEST else f"{name}-placement")
    for name in NAMED
    if name == NEWEST or "GPUSTACK_NOVA_RELEASES" in os.environ
]
"""The newest release; with ``make test-all`` also those that count no devices."""
COUNTS_DEVICES = "2026.2"
MARKER = "CUSTOM_GPU_QUOTA_K4200"
DEVICE = "CUSTOM_PCI_10DE_11B4"


def refused(message: str = "is over a limit for") -> pytest.RaisesExc[ForbiddenException]:
    return pytest.raises(ForbiddenException, match=message)


@pytest.mark.every_release
@pytest.mark.parametrize("cloud", BY_RELEASE, indirect=True)
def test_markers_limit_boot_and_resize(world: QuotaWorld) -> None:
    quotas = {"default": {"k4200": 0}, "projects": {"research": {"k4200": 2}}}
    spec = world.apply(**quotas)
    plan = data(world.run("quota", "plan", spec, "-f", "json"))
    assert (plan["operations"], plan["unchanged"], plan["findings"]) == ([], 2, [])
    effects = {check["operation"]: check["effect"] for check in plan["enforcement"]}
    assert effects["boot"] == effects["resize"] == "enforced"

    with refused():
        world.boot("g1", world.admin)  # the default
    first = world.boot("g1")
    with refused(rf"{MARKER} is over limit of 2 due to current usage 1 and delta 2"):
        world.boot("g2")
    with refused(rf"{MARKER} is over limit of 2 due to current usage 1 and delta 2"):
        world.resize(first, "g2")
    second = world.boot("g1")
    with refused():
        world.boot("g1")

    world.apply(default={"k4200": 0}, projects={"research": {"k4200": 4}})
    world.resize(first, "g2")
    world.reach(first, "VERIFY_RESIZE")
    assert world.used()[MARKER] == 4  # both flavors of the first, and the second
    world.student.compute.confirm_server_resize(first)
    world.reach(first, "ACTIVE")
    assert world.used()[MARKER] == 3
    assert second.id != first.id


@pytest.mark.every_release
@pytest.mark.parametrize("cloud", BY_RELEASE, indirect=True)
def test_unshelve_above_the_limit_stays_offloaded(world: QuotaWorld) -> None:
    """nova-api accepts it and sets a task; nova-conductor refuses it and removes the task."""
    count = "device" if world.release == COUNTS_DEVICES else "marker"
    name = DEVICE if count == "device" else MARKER
    world.apply(count=count, default={"k4200": 1})
    first = world.boot("g1")
    world.student.compute.shelve_server(first)
    world.reach(first, "SHELVED_OFFLOADED")
    assert world.used().get(name, 0) == 0
    second = world.boot("g1")
    world.student.compute.unshelve_server(first)
    world.reach(first, "SHELVED_OFFLOADED")
    assert world.used()[name] == 1

    servers.delete(world.student, second, seconds=SECONDS)
    world.student.compute.unshelve_server(first)
    world.reach(first, "ACTIVE")
    assert world.used()[name] == 1
    spec = world.apply(count=count, default={"k4200": 1}, projects={"research": {"k4200": 0}})
    assert "GPU742" in world.run("quota", "plan", spec).err
    (share,) = data(world.run("quota", "show", "--project", "research", "-f", "json"))
    assert (share["limit"], share["source"], share["used"], share["state"]) == (0, "project", 1, "over")


@pytest.mark.parametrize("cloud", BY_RELEASE, indirect=True)
def test_everybody_sees_the_own_limit(world: QuotaWorld) -> None:
    spec = world.apply(default={"k4200": 1}, projects={"research": {"k4200": 2}})
    world.boot("g1")
    (share,) = data(world.run("quota", "show", "-f", "json", user="student"))
    assert (share["project_name"], share["model"], share["limit"], share["used"]) == ("research", "k4200", 2, 1)
    metrics = world.directory / "gpus.prom"
    assert world.run("gpu", "watch", "--once", "--textfile", metrics, "--spec", spec).code == 0
    text = metrics.read_text(encoding="utf-8")
    (use,) = samples(text, "gpustack_tenant_gpus").items()
    assert samples(text, "gpustack_tenant_gpu_limit")[use[0]] == 2
    assert world.run("report", "--out", world.directory, "--spec", spec).code == 0
    assert "Projects against quota" in (world.directory / "index.html").read_text(encoding="utf-8")
    every = data(world.run("quota", "show", "--all-projects", "-f", "json"))
    assert {entry["project_name"]: entry["limit"] for entry in every} == {"admin": 1, "research": 2}
    ran = world.run("quota", "plan", spec, user="student")
    assert (ran.code, "HTTP 403" in ran.err) == (21, True), ran


@pytest.mark.every_release
@pytest.mark.parametrize("cloud", PLACED, indirect=True)
def test_devices_limit_boot_and_not_resize(world: QuotaWorld) -> None:
    spec = world.apply(count="device", default={"k4200": 1})
    plan = data(world.run("quota", "plan", spec, "-f", "json"))
    effects = {check["operation"]: check["effect"] for check in plan["enforcement"]}
    counted = world.release == COUNTS_DEVICES
    assert effects == {"boot": "enforced" if counted else "none", "resize": "none", "unshelve": effects["boot"]}
    assert [finding["code"] for finding in plan["findings"]].count("GPU747") == 2 - counted
    first = world.boot("g1")
    if counted:
        with refused(rf"{DEVICE} is over limit of 1 due to current usage 1 and delta 1"):
            world.boot("g1")
    else:
        world.boot("g1")
    world.resize(first, "g2")
    world.reach(first, "VERIFY_RESIZE")
    assert world.used()[DEVICE] > 2
