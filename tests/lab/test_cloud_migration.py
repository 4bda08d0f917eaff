"""Two hosts of a cloud: moves of instances with a GPU, and failures in the middle of them.

After each failure `gpustack cleanup plan` must find what Nova lost. The repair, or the advice, must make the GPU boot a
new instance, while the old one works. All tests share one cloud: each begins and ends with free GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from .cloud import faults, kept, prerequisites
from .cloud.moves import Mover, assert_gpu_on_console
from .conftest import Lab
from .playbooks import Run

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
    assert "repaired: class B" in apply(mover, "--journal", "copy.jsonl").output
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
    undo = mover.cloud.gpustack("cleanup", "undo", *databases(mover), "copy.jsonl")
    assert undo.code == 14, undo.output
    mover.delete(old, new)


def databases(mover: Mover) -> list[str]:
    """The options that name Nova's databases."""
    return ["--config-file", str(mover.cloud.plane.nova_conf)]


def planned(mover: Mover, *options: str) -> list[tuple[str, str, str]]:
    """Class, status and host of each row of the plan, which also asks the hosts."""
    columns = [word for name in ("Class", "Status", "Host") for word in ("-c", name)]
    judged = ["--grace", "0", "--stuck-after", "0", "--ask-hosts", *kept.SSH_OPTIONS]
    run = mover.cloud.must("cleanup", "plan", *databases(mover), *judged, "-f", "csv", *columns, *options)
    rows = re.findall(r'^"(\w) \([\w-]+\)","(\w+)","([\w-]+)"', run.output, flags=re.MULTILINE)
    return sorted(rows)


def apply(mover: Mover, *options: str) -> Run:
    """Repair what the plan calls stale."""
    judged = ["--grace", "0", "--stuck-after", "0", *kept.SSH_OPTIONS]
    return mover.cloud.must("cleanup", "apply", *databases(mover), *judged, "--yes", *options)
