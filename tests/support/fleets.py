"""Fleets as data: hosts with GPUs in every state, of any size, and with hostile names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from gpustack.base.findings import Code, Finding, Severity
from gpustack.cloud.servers import Server
from gpustack.fleet.model import Fleet, Gap, Gpu, Holder, HostCount, Source, State
from gpustack.hosts.facts.gpus import gpus
from gpustack.hosts.facts.model import Host

A100 = "NVIDIA A100 SXM4 80GB"
T4 = "NVIDIA T4"
STATES = (*[State.ALLOCATED] * 4, State.FREE, State.RESERVED, State.ALLOCATED, State.INCONSISTENT)
HOSTILE = "<img src=x onerror=alert(1)>\x1b[2J\u202e\"'&{{ 7 * 7 }}</script>"


def gpu(host: str, number: int, state: State, *, name: str = "", model: str = A100) -> Gpu:
    """A GPU of a host; if its state says so, the instance ``name`` has it."""
    taken = state in (State.ALLOCATED, State.CLAIMED, State.INCONSISTENT)
    identity = f"7d4f0c1e-{number:04x}-4c1b-9d1a-{abs(hash_of(host)):012x}"
    project = f"9c6d3a{hash_of(host + str(number)) % 7:026x}"
    server = Server(
        id=identity,
        name=name or f"train-{hash_of(host) % 900}-{number}",
        project=project,
        user=f"5e1b{number % 3:028x}",
        host=host,
        status="SHUTOFF" if number == 6 else "ACTIVE",
        flavor="a100-1.large",
        devices={"a100": 1},
        since=datetime.fromisoformat("2026-03-04T05:06") + timedelta(hours=hash_of(host) % 5000),
    )
    return Gpu(
        host=host,
        node=host,
        address=f"0000:{0x17 + 4 * number:02x}:00.0",
        model=model,
        state=state,
        holders=(Holder(consumer=identity, server=server, project=project, user=server.user),) if taken else (),
        used=int(taken),
        numa_node=number // 4,
        sources=(Source.PLACEMENT, Source.NOVA),
    )


def hash_of(text: str) -> int:
    """A number that differs between texts, and not between runs."""
    return sum(ord(character) * (place + 7) for place, character in enumerate(text))


def fleet_of(hosts: int, per_host: int = 8) -> Fleet:
    """A fleet with GPUs in all states but claimed and unavailable."""
    return _fleet(tuple(_gpus(hosts, per_host)), per_host)


def _gpus(hosts: int, per_host: int) -> Iterator[Gpu]:
    for number in range(hosts):
        for slot in range(per_host):
            state = STATES[slot % 8] if number % 5 else State.FREE if slot < 3 else State.ALLOCATED
            if state is State.INCONSISTENT and number % 20 > 1:
                state = State.FREE
            yield gpu(f"gpu{number + 1:04}", slot, state)


def _fleet(gpus: tuple[Gpu, ...], per_host: int) -> Fleet:
    free: dict[str, int] = {}
    for entry in gpus:
        free[entry.host] = free.get(entry.host, 0) + entry.free
    return Fleet(
        gpus=gpus,
        counts=tuple(
            HostCount(host=host, model=A100, total=per_host, free=number, used=per_host - number, per_gpu=True)
            for host, number in free.items()
        ),
        servers=tuple(entry.server for entry in gpus if entry.server),
        projects={f"9c6d3a{number:026x}": f"project-{number}" for number in range(6)},
        users={f"5e1b{0:028x}": "alice", f"5e1b{1:028x}": "bob"},
        findings=tuple(
            Finding(
                code=Code("GPU701"),
                severity=Severity.WARNING,
                place=entry.place,
                message="an instance holds more GPUs in Placement than it requests",
                remedy="run gpustack cleanup plan; the class is Q (allocation-drift)",
            )
            for entry in gpus
            if entry.state is State.INCONSISTENT
        ),
    )


def hostile() -> Fleet:
    """A fleet whose every name is an attack on a page or a terminal."""
    holder = Holder(
        consumer=HOSTILE,
        server=Server(id=HOSTILE, name=HOSTILE, status=HOSTILE, flavor=HOSTILE, host=HOSTILE, devices={HOSTILE: 1}),
        project=HOSTILE,
        user=HOSTILE,
    )
    entry = Gpu(
        host=HOSTILE,
        node=HOSTILE,
        address=HOSTILE,
        model=HOSTILE,
        state=State.ALLOCATED,
        holders=(holder,),
        used=1,
        link=HOSTILE,
        sources=(Source.NOVA,),
    )
    finding = Finding(code=Code("GPU701"), severity=Severity.ERROR, place=HOSTILE, message=HOSTILE, remedy=HOSTILE)
    return Fleet(
        gpus=(entry, gpu("gpu1", 0, State.ALLOCATED, name=HOSTILE)),
        counts=(HostCount(host=HOSTILE, model=HOSTILE, total=1, free=None, used=1, per_gpu=False),),
        projects={HOSTILE: HOSTILE + "1"},
        users={HOSTILE: HOSTILE + "2"},
        findings=(finding,),
        partial=(Gap(source=Source.NOVA, reason=HOSTILE),),
        notes=(HOSTILE,),
    )


def fleet_on(*hosts: Host) -> Fleet:
    """A fleet of the GPUs of these hosts."""
    entries = [
        replace(gpu(host.hostname, number, STATES[number % 8]), address=card.main.address, model=card.name)
        for host in hosts
        for number, card in enumerate(gpus(host))
    ]
    return _fleet(tuple(entries), len(entries) // len(hosts))
