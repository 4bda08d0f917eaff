"""Check for free capacity on other hosts before the first instance is moved.

Placement has vCPUs, memory and disk, and never allocates more than it has. If Placement has no room, Nova's scheduler
refuses too. If it has room, the scheduler may still refuse because of devices, NUMA nodes or filters.
"""

from collections import Counter
from collections.abc import Sequence

from gpustack.base.findings import Code, Finding, finding
from gpustack.cloud.placement import Amounts, Room
from gpustack.prepare.drain.steps import GuestStep

_OF_HOSTS = ("MEMORY_MB", "VCPU")
"""Resource classes that hosts do not share. Disk may be a shared pool, where a moved instance frees what it takes."""


def lacking(host: str, wanted: Sequence[tuple[GuestStep, Amounts, Room]]) -> tuple[Finding, ...]:
    """Return findings if an instance fits nowhere, or if the instances together need more than is free.

    :param host: the host as Nova names it.
    :param wanted: for each move, the instance's needs and the hosts where it fits.
    """
    nowhere = [(move, needs) for move, needs, room in wanted if not room.free]
    if nowhere:
        reason = "no other open host has that free"
        return tuple(_finding(f"{host} {move.name} ({move.server})", needs, reason) for move, needs in nowhere)
    if not all(room.whole for _, _, room in wanted):
        return ()
    together: Counter[str] = Counter()
    free: dict[str, Amounts] = {}
    for _, needs, room in wanted:
        together.update({name: amount for name, amount in needs.items() if name in _OF_HOSTS})
        free.update(room.free)
    total = {name: sum(free_amounts.get(name, 0) for free_amounts in free.values()) for name in together}
    short = {name: amount for name, amount in together.items() if amount > total[name]}
    if not short:
        return ()
    remaining = {name: total[name] for name in short}
    return (
        _finding(
            f"{host} {len(wanted)} guests", short, f"all others that are open have {_show_amounts(remaining)} free"
        ),
    )


def _finding(place: str, needs: Amounts, room: str) -> Finding:
    return finding(Code.NO_CAPACITY, place=place, needs=_show_amounts(needs), room=room)


def _show_amounts(amounts: Amounts) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in sorted(amounts.items()))
