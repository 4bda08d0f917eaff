"""Two hosts of a cloud: moves of instances with a GPU, and failures in the middle of them.

After each failure `gpustack cleanup plan` must find what Nova lost. The repair, or the advice, must make the GPU boot a
new instance, while the old one works. All tests share one cloud: each begins and ends with free GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from .cloud import faults, instances, kept, prerequisites
from .cloud.compute import UNIT
from .cloud.moves import FREE_SECONDS, MOVE_SECONDS, Mover, assert_gpu_on_console, running_functions
from .commands import SSH_OPTIONS
from .conftest import Lab
from .playbooks import Run
from .topology import GPU_COUNT

if TYPE_CHECKING:
    from openstack.compute.v2.server import Server

# openstacksdk warns of its own code.
pytestmark = [
    pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK50Warning"),
    pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK60Warning"),
]

FIRST, SECOND = kept.HOSTS


@pytest.fixture(scope="module")
def cloud(compute_lab: Lab) -> Iterator[Mover]:
    prerequisites.check()
    with kept.two_hosts(compute_lab) as running, running.plane.connection() as api:
        yield Mover(cloud=running, api=api, report=compute_lab.report)


@pytest.fixture
def mover(cloud: Mover, request: pytest.FixtureRequest) -> Mover:
    cloud.report(request.node.name)
    cloud.assert_free()
    return cloud


def test_copy_fails_then_a_migration_succeeds(mover: Mover) -> None:
    old = mover.boot("old", FIRST)
    with faults.no_ssh_from(mover.compute(FIRST).host):
        mover.migrate(old, SECOND)
        mover.wait_for_migration(old, "error")
        mover.wait_for(old, "ACTIVE")
    assert set(mover.where(old).rows) == {FIRST, SECOND}

    assert planned(mover) == [("B", "stale", SECOND)]
    assert re.search(r"^class B .*: done: ", apply(mover, "--journal", "copy.jsonl").output, re.MULTILINE)
    mover.assert_at(old, FIRST)
    new = mover.boot("new", SECOND)

    mover.report("a migration, to the GPU that was lost or the other one")
    mover.migrate(old, SECOND)
    mover.wait_for(old, "VERIFY_RESIZE")
    moved = mover.where(old)
    assert set(moved.rows) == {FIRST, SECOND}
    assert moved.domains == {SECOND: moved.rows[SECOND]}
    assert moved.allocations == [SECOND]
    mover.api.compute.confirm_server_resize(old.id)
    mover.wait_for(old, "ACTIVE")
    mover.assert_at(old, SECOND)
    assert planned(mover) == []
    assert_gpu_on_console(mover, SECOND, old, new)

    mover.report("undo, which finds the GPU in use by another instance")
    undo = mover.cloud.gpustack("cleanup", "undo", *databases(mover), "copy.jsonl", "--yes")
    assert undo.code == 14, undo.output
    mover.delete(old, new)


def test_compute_dies_while_it_confirms(mover: Mover) -> None:
    """Nova can neither confirm nor revert any more, and the GPU of the source is lost."""
    first = mover.compute(FIRST)
    old = mover.boot("old", FIRST)
    mover.migrate(old, SECOND)
    mover.wait_for(old, "VERIFY_RESIZE")
    with faults.inserts_hang(mover.cloud.plane, "instance_actions_events", "NEW.event = 'compute_confirm_resize'"):
        mover.api.compute.confirm_server_resize(old.id)
        first.wait("confirmation", lambda: faults.hangs(mover.cloud.plane), seconds=MOVE_SECONDS, pause=0.2)
        killed = datetime.now(UTC)
        first.host.ssh(["systemctl", "kill", "--signal", "KILL", UNIT])
    first.wait("nova-compute again", lambda: first.up(killed), seconds=kept.SERVICE_SECONDS)
    assert set(mover.where(old).rows) == {FIRST, SECOND}
    assert planned(mover) == [("A", "stuck", FIRST)]
    end_migration_by_hand(mover, old, "confirming")
    remove_rest_at_source(mover, old)
    assert_all_gpus_work(mover, old, at=SECOND, empty=FIRST)


def test_power_cut_of_the_source_during_the_copy(mover: Mover) -> None:
    """Nova 2025.2 fails to revert the move when the source returns: the instance can't start, both GPUs are lost."""
    first = mover.compute(FIRST)
    old = mover.boot("old", FIRST)
    with faults.copies_hang_from(first.host):
        mover.migrate(old, SECOND)
        first.wait("copy of the disk", lambda: faults.copies(first.host), seconds=MOVE_SECONDS)
        assert mover.task(old) == "resize_migrating"
        first.host.kill()
        faults.restore_power(first)
    mover.report("Nova stops the instance, whose domain does not run")
    mover.wait_for(old, "SHUTOFF")
    assert mover.migrations(old) == ["migrating"]
    assert set(mover.where(old).rows) == {FIRST, SECOND}
    mover.api.compute.start_server(old.id)
    first.wait("start that fails", lambda: action_failed(mover, old, "start") or None, seconds=MOVE_SECONDS)

    assert planned(mover) == [("A", "stale", SECOND)]
    assert re.search(r"^class A .*: done: ", apply(mover).output, re.MULTILINE)
    second = mover.compute(SECOND)
    second.wait("GPUs of the destination free", second.free, seconds=FREE_SECONDS)
    assert planned(mover) == []

    mover.report("allocations, as the runbook says")
    assert mover.where(old).allocations == [SECOND]
    delete_allocations(mover)
    mover.cloud.plane.nova_manage("placement", "heal_allocations", "--instance", old.id, "--verbose")
    second.host.ssh(["rm", "-r", f"/var/lib/nova/instances/{old.id}"])
    mover.api.compute.start_server(old.id)
    mover.wait_for(old, "ACTIVE")
    assert_all_gpus_work(mover, old, at=FIRST, empty=SECOND)


def test_power_cut_of_the_destination_while_it_starts_the_instance(mover: Mover) -> None:
    """Nova never goes on: the task stays, and the source keeps its GPU for the instance."""
    second = mover.compute(SECOND)
    old = mover.boot("old", FIRST)
    mover.migrate(old, SECOND)
    mover.wait_for_task(old, "resize_finish")
    second.host.kill()
    faults.restore_power(second)
    assert mover.task(old) == "resize_finish"
    assert mover.migrations(old) == ["post-migrating"]
    assert set(mover.where(old).rows) == {FIRST, SECOND}

    # Nova's row has a GPU for the instance, and no domain uses it.
    no_domain = ("T", "report", SECOND)
    assert planned(mover) == [("A", "stuck", FIRST), no_domain]
    end_migration_by_hand(mover, old, "post-migrating", no_domain)
    copy_disk_again(mover, old)
    mover.api.compute.reboot_server(old.id, "HARD")
    mover.wait_for(old, "ACTIVE")
    remove_rest_at_source(mover, old)
    assert_all_gpus_work(mover, old, at=SECOND, empty=FIRST)


def test_evacuation_and_the_return_of_the_old_host(mover: Mover) -> None:
    """Until the old host returns, its GPU counts as the instance's; then Nova frees it."""
    first = mover.compute(FIRST)
    old = mover.boot("old", FIRST)
    first.host.kill()
    mover.force_down(FIRST, down=True)
    mover.api.compute.evacuate_server(old.id, host=SECOND)
    mover.wait_for_migration(old, "done")
    mover.wait_for(old, "SHUTOFF")
    assert set(mover.where(old, [SECOND]).rows) == {FIRST, SECOND}

    mover.report("the GPU of the old host is freed before its return; undo, while no other instance can use it")
    pinned = [("A", "stale", FIRST)]
    # A host that is forced down counts as up until service_down_time after its last report.
    first.wait("silence of the old host", lambda: planned(mover, ask=False) == pinned or None, seconds=FREE_SECONDS)
    assert re.search(r"^class A .*: done: ", apply(mover, "--journal", "evacuation.jsonl").output, re.MULTILINE)
    assert planned(mover, ask=False) == []
    mover.api.compute.start_server(old.id)
    mover.wait_for(old, "ACTIVE")
    mover.cloud.must("cleanup", "undo", *databases(mover), "evacuation.jsonl", "--yes")
    assert planned(mover, ask=False) == pinned

    mover.report("the old host returns")
    faults.restore_power(first)
    mover.force_down(FIRST, down=False)
    mover.wait_for_migration(old, "completed")
    first.wait("GPUs of the old host free", first.free, seconds=FREE_SECONDS)
    assert planned(mover) == []
    assert_all_gpus_work(mover, old, at=SECOND, empty=FIRST)


def end_migration_by_hand(mover: Mover, old: Server, status: str, *left: tuple[str, str, str]) -> None:
    """Free the GPU of the source; the plan keeps the rows that are `left`."""
    mover.report("what the runbook says: the state, the migration; and gpustack frees the GPU")
    mover.cloud.plane.openstack("server", "set", "--state", "active", "--auto-approve", old.id)
    mover.cloud.plane.sql(
        f"UPDATE nova_cell1.migrations SET status = 'error' WHERE instance_uuid = '{old.id}'"
        f" AND status = '{status}' AND deleted = 0"
    )
    assert planned(mover) == [("B", "stale", FIRST), *left]
    assert re.search(r"^class B .*: done: ", apply(mover).output, re.MULTILINE)
    assert planned(mover) == list(left)
    delete_allocations(mover)


def delete_allocations(mover: Mover) -> None:
    """Delete the allocations that no instance and no migration in progress needs, as the runbook says."""
    audit = ["placement", "audit", "--delete", "--verbose"]
    assert "Deleted allocations for consumer" in mover.cloud.plane.nova_manage(*audit, codes=(4,))


def copy_disk_again(mover: Mover, old: Server) -> None:
    """As the runbook says: the destination may have lost what it had not written, in files of the right size."""
    files = [f"/var/lib/nova/instances/{old.id}_resize/{name}" for name in ("disk", "disk.info")]
    mover.compute(FIRST).host.ssh(["scp", *files, f"{kept.HOSTS[SECOND]}:/var/lib/nova/instances/{old.id}/"])


def remove_rest_at_source(mover: Mover, old: Server) -> None:
    first = mover.compute(FIRST).host
    first.ssh(["virsh", "undefine", old.id])
    first.ssh(["rm", "-r", f"/var/lib/nova/instances/{old.id}_resize"])


def assert_all_gpus_work(mover: Mover, old: Server, *, at: str, empty: str) -> None:
    """The old instance works, and each GPU of the other host gets a new one."""
    mover.assert_at(old, at)
    new = [mover.boot(f"new{number}", empty) for number in range(GPU_COUNT)]
    assert_gpu_on_console(mover, at, old)
    assert_gpu_on_console(mover, empty, *new)
    mover.delete(old, *new)


def action_failed(mover: Mover, server: Server, action: str) -> bool:
    """Whether the last action of this kind ended with an error."""
    rows = mover.cloud.plane.sql(
        f"SELECT message FROM nova_cell1.instance_actions WHERE instance_uuid = '{server.id}'"
        f" AND action = '{action}' ORDER BY id DESC LIMIT 1"
    )
    return rows != [] and rows[0][0] == "Error"


def test_database_error_at_the_end_of_a_spawn(mover: Mover) -> None:
    """The domain runs, Nova has set the instance to ERROR without a host, and offers its GPU to the next one."""
    old = mover.boot("old", FIRST)
    with faults.one_write_fails(
        mover.cloud.plane, "instances", "NEW.vm_state = 'active' AND OLD.vm_state = 'building'"
    ):
        lost = mover.create("lost", FIRST)
        mover.wait_for(lost, "ERROR")
    destroy_lost_domain(mover, old, lost)


def destroy_lost_domain(mover: Mover, old: Server, lost: Server) -> None:
    first = mover.compute(FIRST)
    (address,) = running_functions(first.host, lost.id) or [""]
    first.wait("row freed by Nova", lambda: first.devices()[address] == "available" or None, seconds=FREE_SECONDS)
    # It is the only class that the databases alone do not show.
    assert planned(mover) == [("T", "report", FIRST)]
    mover.assert_at(old, FIRST)

    mover.report("what the runbook's class T says: disable, destroy, undefine, enable")
    mover.enable(FIRST, enabled=False)
    first.host.ssh(["virsh", "destroy", lost.id])
    first.host.ssh(["virsh", "undefine", lost.id])
    mover.enable(FIRST, enabled=True)
    assert planned(mover) == []
    instances.delete(mover.api, first, lost)
    new = mover.boot("new", FIRST)
    assert mover.where(new).rows == {FIRST: [address]}
    mover.assert_at(new, FIRST)
    mover.assert_at(old, FIRST)
    assert_gpu_on_console(mover, FIRST, old, new)
    mover.delete(old, new)


def databases(mover: Mover) -> list[str]:
    """The options that name Nova's databases."""
    return ["--config-file", str(mover.cloud.plane.nova_conf)]


def planned(mover: Mover, *, ask: bool = True) -> list[tuple[str, str, str]]:
    """Class, status and host of each row of the plan, which also asks the hosts unless one is off."""
    columns = [word for name in ("Class", "Status", "Host") for word in ("-c", name)]
    judged = ["--grace", "0", "--stuck-after", "0", *(["--ask-hosts", *SSH_OPTIONS] if ask else [])]
    run = mover.cloud.must("cleanup", "plan", *databases(mover), *judged, "-f", "csv", *columns)
    rows = re.findall(r'^"(\w)","(\w+)","([\w-]+)"$', run.output, flags=re.MULTILINE)
    return sorted(rows)


def apply(mover: Mover, *options: str) -> Run:
    """Repair what the plan calls stale."""
    judged = ["--grace", "0", "--stuck-after", "0", *SSH_OPTIONS]
    return mover.cloud.must("cleanup", "apply", *databases(mover), *judged, "--yes", *options)
