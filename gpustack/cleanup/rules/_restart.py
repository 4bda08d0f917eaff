"""What a start of nova-compute would do, where a guest's device stands as free (class L).

A running nova-compute has in its memory who has which device. When it starts it takes that from the rows, and offers
what stands there as free: a repair for which it is restarted, or stopped and started, would then give a device in use
to a second guest. So class L comes first.
"""

from __future__ import annotations

from dataclasses import replace

from gpustack.cleanup.facts import Clock, NodeView
from gpustack.cleanup.rules import l_missing
from gpustack.cleanup.verdict import Repair, Status, Verdict


def careful(verdict: Verdict, view: NodeView, clock: Clock) -> Verdict:
    """The verdict, or a word of caution in its stead where it asks for a start of nova-compute that may do harm."""
    if verdict.status is not Status.STALE or not (verdict.stop or verdict.repair is Repair.RESTART):
        return verdict
    lacking = list(l_missing.judge(view, clock))
    if not lacking:
        return verdict
    guests = ", ".join(str(one.owner) for one in lacking)
    settled = all(one.status is not Status.PROTECTED for one in lacking)
    return replace(
        verdict,
        status=Status.REPORT if settled else Status.PROTECTED,
        because=f"{verdict.because}; but instance {guests} lacks a device, or may: when nova-compute starts, it may "
        "offer one that is in use",
        repair=None,
        stop=False,
        ask_hypervisor=True,
        advice="do not restart nova-compute on this host before class L is settled; then plan again" if settled else "",
    )
