"""The hosts that an instance can return to after shelving. Pure."""

from collections.abc import Iterable, Sequence

from gpustack.cloud.servers import Server
from gpustack.nova_options.aggregates import Aggregate
from gpustack.operate.reclaim.model import Rules

_LISTED = 5


def no_return(server: Server, rules: Rules, hosts: Iterable[str], aggregates: Sequence[Aggregate]) -> str:
    """Why every host with its GPUs would refuse an instance; empty if one may accept it.

    :param hosts: all hosts of Nova. Those that the spec knows by another name are not compared.
    """
    problems = {}
    for host in sorted({server.host, *(host for host in hosts if rules.has_gpus(host, server.devices))}):
        problem = _refusal(server, [aggregate for aggregate in aggregates if aggregate.has(host)])
        if not problem:
            return ""
        problems[host] = problem
    more = len(problems) - _LISTED
    texts = [f"{host} {problem}" for host, problem in problems.items()][:_LISTED]
    return "; ".join([*texts, *([f"{more} more hosts refuse it"] if more > 0 else [])])


def _refusal(server: Server, aggregates: Sequence[Aggregate]) -> str:
    """Why a host in these aggregates would refuse an instance; empty if it may accept it."""
    traits = frozenset().union(*(aggregate.traits for aggregate in aggregates)) - server.traits
    if traits:
        return f"requires {', '.join(sorted(traits))}, which its flavor lacked at boot"
    projects = frozenset().union(*(aggregate.projects for aggregate in aggregates))
    return "accepts other projects only" if projects and server.project not in projects else ""
