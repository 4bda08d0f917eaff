"""The rules about other instances on the host: server groups, and two scheduler hints. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from gpustack.cloud.boot import ServerGroup
from gpustack.operate.capacity.model import Neighbors
from gpustack.operate.capacity.walk import GROUPS, HINTS


def neighbors(
    host: str,
    groups: Sequence[ServerGroup],
    hints: Mapping[str, Collection[str]],
    placed: Mapping[str, str],
) -> tuple[Neighbors, ...]:
    """The rules for an instance, as the filters of nova/scheduler/filters/affinity_filter.py apply them.

    Soft policies refuse no host. A group with ``affinity`` and no instance on a host accepts every host.

    :param host: that of the instance; empty if it has none.
    :param placed: the host of each instance on one, by its id.
    """
    rules = []
    for group in groups:
        if group.policy not in GROUPS:
            continue
        hosts = _counted(group.members, placed)
        apart = group.policy == "anti-affinity"
        if apart:  # an instance may always stay on its host
            hosts.pop(host, None)
        if apart or hosts:
            limit = group.most if apart else None
            step = GROUPS[group.policy]
            rules.append(Neighbors(step=step, of=f"the server group {group.name}", hosts=hosts, limit=limit))
    for hint, step in HINTS.items():
        if uuids := hints.get(hint):
            limit = 1 if hint == "different_host" else None
            rules.append(Neighbors(step=step, of=f"the hint {hint}", hosts=_counted(uuids, placed), limit=limit))
    return tuple(rules)


def _counted(uuids: Collection[str], placed: Mapping[str, str]) -> Counter[str]:
    return Counter(placed[uuid] for uuid in map(str.lower, uuids) if uuid in placed)
