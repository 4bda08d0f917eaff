"""A host in service is prepared again: its instance moves with its GPU, the host reboots and returns to service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING

import pytest

from gpustack_demo.embedded.run import NAME

from .background import in_background
from .cloud import kept, prerequisites
from .cloud.compute import UNIT
from .cloud.moves import MOVE_SECONDS, Mover, Where, assert_gpu_on_console
from .conftest import Lab
from .errors import LabError
from .playbooks import Run, play, spec
from .test_addresses import configuration
from .test_cloud_migration import planned
from .test_prepare import assert_prepared
from .test_trial import arguments
from .topology import GPU_COUNT

if TYPE_CHECKING:
    from openstack.compute.v2.server import Server

# openstacksdk warns of its own code.
pytestmark = [
    pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK50Warning"),
    pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK60Warning"),
]

FIRST, SECOND = kept.HOSTS
# The spec of the kept hosts without one kernel argument: only a reboot removes it.
ARGUMENT = "iommu=pt"
SPEC = spec(sections=f"{kept.SECTIONS}options: {{iommu_pt: false}}\n", hosts=list(kept.HOSTS))
COLD_MIGRATE = ("-e", "gpustack_device_guests=cold-migrate")


@pytest.fixture
def mover(compute_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mover]:
    prerequisites.check()
    with kept.two_hosts(compute_lab) as cloud, cloud.plane.connection() as api:
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(cloud.plane.clouds_yaml))
        yield Mover(cloud=cloud, api=api, report=compute_lab.report)


def test_host_in_service_is_prepared_again(mover: Mover) -> None:
    first = mover.compute(FIRST).host
    first.ssh(["systemctl", "enable", UNIT])  # as a package does; nova.yml only starts it
    assert ARGUMENT in arguments(first)
    old = mover.boot("old", FIRST)

    mover.report("prepare.yml without a policy for instances, which must refuse")
    before = configuration(first)
    run = prepare(mover)
    assert run.code != 0, run.output
    assert old.id in run.output
    assert service(mover) == ("enabled", None)
    assert configuration(first) == before
    mover.assert_at(old, FIRST)

    mover.report("prepare.yml with a cold migration and a reboot")
    preparation = in_background(prepare, mover, *COLD_MIGRATE)
    follow(mover, old, preparation)
    run = preparation.result()
    assert run.code == 0, run.output
    assert service(mover) == ("enabled", None)
    assert ARGUMENT not in arguments(first)
    assert_prepared(first)
    mover.assert_at(old, SECOND)
    assert mover.api.compute.get_server(old.id).metadata == {}
    assert planned(mover) == []

    mover.report("an instance for each GPU of the host")
    new = [mover.boot(f"new{number}", FIRST) for number in range(GPU_COUNT)]
    for server in new:
        mover.assert_at(server, FIRST)
    mover.report("consoles")
    assert_gpu_on_console(mover, SECOND, old)
    assert_gpu_on_console(mover, FIRST, *new)
    mover.delete(old, *new)
    assert planned(mover) == []

    mover.report("prepare.yml again")
    boots = first.boots()
    run = prepare(mover, *COLD_MIGRATE)
    assert run.code == 0, run.output
    assert run.count("changed") == 0, run.output
    assert first.boots() == boots
    assert service(mover) == ("enabled", None)


def prepare(mover: Mover, *options: str) -> Run:
    """prepare.yml for the first host, with the cloud that it serves; the second is in the inventory too."""
    first, second = (mover.compute(name).host for name in (FIRST, SECOND))
    cloud = ("-e", f"gpustack_cloud={NAME}", "-e", "gpustack_reboot=true")
    return play(first, "prepare.yml", "--limit", FIRST, *cloud, *options, others=[second], text=SPEC)


def follow(mover: Mover, server: Server, preparation: Future[Run]) -> None:
    """See each step in Nova and on the host, in this order, while the playbook runs."""
    first = mover.compute(FIRST).host
    boots = first.boots()

    def until(step: str, reached: Callable[[], bool]) -> None:
        def answer() -> bool | None:
            ended = preparation.done()
            if reached():
                return True
            if ended:
                raise LabError(f"prepare.yml ended before this step: {step}\n{preparation.result().output}")
            return None

        mover.compute(SECOND).wait(step, answer, seconds=MOVE_SECONDS, pause=1)
        mover.report(step)

    until("service disabled", lambda: service(mover)[0] == "disabled")
    assert str(service(mover)[1]).startswith("gpustack:")
    until("migration confirmed", lambda: mover.migrations(server) == ["confirmed"])
    assert first.boots() == boots
    until("host boots", lambda: first.boots() > boots)
    assert service(mover)[0] == "disabled"
    (address,) = mover.where(server, [SECOND]).rows[SECOND]
    moved = Where(rows={SECOND: [address]}, domains={SECOND: [address]}, defined=[SECOND], allocations=[SECOND])
    assert mover.where(server, [SECOND]) == moved
    until("service enabled", lambda: service(mover)[0] == "enabled")
    assert first.boots() == boots + 1


def service(mover: Mover) -> tuple[str, str | None]:
    """Whether Nova schedules to the first host, and why not."""
    (found,) = mover.api.compute.services(host=FIRST, binary="nova-compute")
    return found.status, found.disabled_reason
