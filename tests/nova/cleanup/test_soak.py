"""Plan and apply again and again beside a Nova that boots, moves and deletes: it never notices.

``GPUSTACK_SOAK_CYCLES`` says how many cycles of plan and apply there are (``make soak``); a few without it.
"""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from gpustack.changes.change import ChangeResult
from gpustack.novadb.sources import Sources
from gpustack.repair import plan
from gpustack.repair.hypervisor import Usage
from gpustack.repair.plan import Selection
from gpustack_demo.embedded import servers
from support.cellfile import answering
from support.cleanup_runs import run
from support.clouds import WORLDS
from support.cloudworld import World

pytestmark = pytest.mark.parametrize("cloud", WORLDS[:1], indirect=True)

CYCLES = int(os.environ.get("GPUSTACK_SOAK_CYCLES", "40"))


def test_a_working_nova_never_notices(world: World, tmp_path: Path) -> None:
    first, second = world.hosts(2)
    sources = Sources.from_nova_conf([world.nova.nova_conf])
    selection = Selection(grace=timedelta(0), hosts=frozenset({first, second}))
    finished, failed, moves = threading.Event(), [], 0

    def work() -> None:
        nonlocal moves
        try:
            with world.nova.connection() as api:
                while not finished.is_set():
                    server = servers.boot(api, f"soak{moves}", world.flavors[1 + moves % 2], host=first)
                    assert server.status == "ACTIVE", server.fault
                    api.compute.migrate_server(server, host=second)
                    moved = servers.settled(api, server)
                    assert moved.status == "VERIFY_RESIZE", (moved.fault, world.log_excerpt())
                    act = api.compute.confirm_server_resize if moves % 2 else api.compute.revert_server_resize
                    act(server)
                    moved = servers.until(
                        api,
                        server,
                        lambda instance: (
                            instance.task_state is None and instance.status not in ("VERIFY_RESIZE", "REVERT_RESIZE")
                        ),
                    )
                    assert moved.status == "ACTIVE", moved.fault
                    servers.delete(api, server)
                    for host in (first, second):  # Nova itself frees what a move left only in its next periodic
                        world.nova.control.periodic(host)
                    moves += 1
        except BaseException as error:
            failed.append(error)

    def ask(host: str) -> Usage:
        used = [device for domain in world.nova.control.domains(host) for device in domain["hostdevs"]]
        users = {address: frozenset({"somebody"}) for address in used}
        return answering(sources, users)(host)

    worker = threading.Thread(target=work)
    worker.start()
    repaired = []
    try:
        for cycle in range(CYCLES):
            if failed:
                break
            repairs = [verdict.to_dict() for verdict in plan.make(sources, selection).repairs]
            outcomes = run(sources, tmp_path / f"journal-{cycle}", repairs, ask, selection)
            repaired += [outcome for outcome in outcomes if outcome.result is ChangeResult.DONE]
            world.exclusive()
    finally:
        finished.set()
        worker.join(timeout=180)
    assert not failed, failed
    assert not repaired  # nothing leaked, so nothing was to be repaired
    assert moves
    world.nova.control.periodic()
    assert {status for host in (first, second) for _address, status, _owner in world.rows(host)} == {"available"}
