"""Whether there is room elsewhere for the guests of a host, as far as that can be known before the first one moves.

Placement knows processors, memory and disks, and gives away no more than it has. So what it has no room for, Nova's
scheduler refuses as well. That it has room says little: devices, NUMA nodes and the scheduler's filters come on top.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpustack.codes import Code
from gpustack.findings import Finding, finding
from gpustack.maintenance.steps import GuestStep

Amounts = Mapping[str, int]
"""How much of what, in Placement's words: ``MEMORY_MB``."""
_OF_HOSTS = ("MEMORY_MB", "VCPU")
"""What is a host's own. Disks may be a pool that hosts share: a guest that moves gives back there what it takes."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """Where a guest fits.

    :param free: what is free, by provider; empty when the guest fits nowhere.
    :param whole: whether these are all providers, and not the first thousand.
    """

    free: Mapping[str, Amounts] = field(default_factory=dict)
    whole: bool = True


def lacking(host: str, wanted: Sequence[tuple[GuestStep, Amounts, Room]]) -> tuple[Finding, ...]:
    """What stands against moving guests: one that fits nowhere, or more of them than fit together.

    :param host: the host as Nova calls it.
    :param wanted: the moves, what each guest needs, and where it fits.
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
