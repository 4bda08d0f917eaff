"""Flavors of a spec that no NUMA node of a host can serve: code GPU721."""

from collections.abc import Iterator, Mapping

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding, finding
from gpustack.hosts.facts.model import Host
from gpustack.spec.model import Spec
from gpustack.spec.requests import by_alias, entries
from gpustack.spec.verdict import verdicts


def spanning_flavors(host: Host, spec: Spec) -> Iterator[Finding]:
    """Flavors whose GPUs this host can only take from several NUMA nodes.

    Models with one alias are the same to Nova. A GPU without a reported node may belong to any node.
    """
    offered = verdicts(spec, host).offered
    nodes_of = by_key((alias, gpu.gpu.main.numa_node) for gpu in offered for alias in spec.aliases_of(gpu.model))
    candidates = {number for numbers in nodes_of.values() for number in numbers}
    for entry in entries(spec):
        request = by_alias(spec, entry.models)
        if any(len(nodes_of.get(alias, ())) < number for alias, number in request.items()):
            continue  # no instance fits the host
        most = max((_on(node, request, nodes_of) for node in candidates), default=0)
        if most < sum(request.values()):
            name, count = entry.name, entry.count
            yield finding(Code.FLAVOR_SPANS_NUMA_NODES, place=host.hostname, flavor=name, count=count, most=most)


def _on(node: int | None, request: Mapping[str, int], nodes_of: Mapping[str, list[int | None]]) -> int:
    """The most GPUs of the request that one node can have."""
    return sum(min(number, sum(n in (node, None) for n in nodes_of[alias])) for alias, number in request.items())
