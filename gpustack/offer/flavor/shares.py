"""The resources of hosts that flavors divide: GPUs that the spec passes through, CPUs, memory, NUMA nodes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpustack.base.by_key import by_key
from gpustack.hosts.facts.gpus import Gpu
from gpustack.hosts.facts.model import Cpu, Host, NumaNode
from gpustack.spec.model import Spec
from gpustack.spec.network_functions import network_functions
from gpustack.spec.verdict import verdicts
from gpustack.spec.vgpu_use import devices, offered_vgpus


@dataclass(frozen=True, kw_only=True)
class NodeShare:
    """A NUMA node: logical CPUs, memory and huge pages by size in KiB (None if unknown), and the GPUs by model.

    The node of a GPU's or an expander's memory has no CPUs.

    :ivar networks: the networks with a virtual function on it.
    """

    cpus: int | None
    memory_mib: int | None
    huge_pages: Mapping[int, int] | None
    gpus: Mapping[str, int]
    networks: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class HostShare:
    """The resources of one host; None means unknown.

    :ivar cpus: logical CPUs.
    :ivar gpus: GPUs that Nova offers, by model, and by alias of a selection.
    :ivar gpu_count: the number of GPUs of the spec. A fault of one does not change the sizes of flavors.
    :ivar networks: the networks with a virtual function, on any NUMA node or none.
    :ivar of_one_card: the names in ``gpus`` of mediated devices: an instance gets them of one card.
    """

    host: str
    cpus: int | None
    memory_mib: int | None
    processor: Cpu
    architecture: str | None
    gpus: Mapping[str, tuple[Gpu, ...]]
    gpu_count: int
    nodes: Mapping[int, NodeShare]
    networks: frozenset[str] = frozenset()
    of_one_card: frozenset[str] = frozenset()

    @property
    def huge_pages(self) -> tuple[Mapping[int, int], ...] | None:
        """The huge pages of each NUMA node with CPUs; None if unknown."""
        nodes = [node for node in self.nodes.values() if node.cpus != 0]
        pages = [node.huge_pages for node in nodes if node.huge_pages is not None]
        return tuple(pages) if pages and len(pages) == len(nodes) else None

    def has(self, wanted: Mapping[str, int]) -> bool:
        """Whether the host has these numbers of GPUs by model."""
        return all(self.most(model) >= count for model, count in wanted.items())

    def most(self, model: str) -> int:
        """The largest number of GPUs that one instance gets."""
        gpus = self.gpus.get(model, ())
        by_card = Counter(gpu.main.address for gpu in gpus)
        return max(by_card.values(), default=0) if model in self.of_one_card else len(gpus)

    def nodes_for(self, wanted: Mapping[str, int]) -> int | None:
        """Return the number of NUMA nodes that hold these GPUs, by a greedy choice; None if all nodes have too few."""
        ranked = sorted(self.nodes.values(), key=lambda n: -sum(min(n.gpus.get(m, 0), c) for m, c in wanted.items()))
        for number in range(1, len(ranked) + 1):
            if all(sum(n.gpus.get(m, 0) for n in ranked[:number]) >= c for m, c in wanted.items()):
                return number
        return None


def host_shares(spec: Spec, hosts: Sequence[Host]) -> tuple[HostShare, ...]:
    """Return the shares of hosts with GPUs that are passed through, in the order of ``hosts``."""
    return tuple(share for share in (_share(spec, host) for host in hosts) if share.gpus)


def _share(spec: Spec, host: Host) -> HostShare:
    judged, mediated = verdicts(spec, host), offered_vgpus(spec, host)
    names = {name: (name, *(a for a, models in spec.selected.items() if name in models)) for name in spec.models}
    gpus = [(assigned.model, assigned.gpu) for assigned in judged.offered]
    for card in mediated:
        part = Gpu(main=card.function.model_copy(update={"bars": ()}))  # a vGPU has BARs of its own
        gpus += [(card.model, part)] * devices(card)
    by_model = by_key((name, gpu) for model, gpu in gpus for name in names[model])
    networks = network_functions(spec, host).by_network
    nodes = {
        node.node: NodeShare(
            cpus=_count_cpus(node.cpus),
            memory_mib=node.memory_mib,
            huge_pages=_huge_pages(node),
            gpus={m: sum(g.main.numa_node == node.node for g in of_model) for m, of_model in by_model.items()},
            networks=frozenset(
                name for name, parts in networks.items() if any(part.numa_node == node.node for part in parts)
            ),
        )
        for node in host.numa_nodes
    }
    return HostShare(
        host=host.hostname,
        cpus=host.cpu.logical,
        memory_mib=host.memory_mib,
        processor=host.cpu,
        architecture=host.architecture,
        gpus={model: tuple(of_model) for model, of_model in by_model.items()},
        gpu_count=len(judged.assigned) + sum(map(devices, mediated)),
        nodes=nodes,
        networks=frozenset(name for name, parts in networks.items() if parts),
        of_one_card=frozenset(name for card in mediated for name in names[card.model]),
    )


def _huge_pages(node: NumaNode) -> dict[int, int] | None:
    if node.huge_pages is None or any(pool.total is None for pool in node.huge_pages):
        return None
    return {pool.size_kib: pool.total or 0 for pool in node.huge_pages}


def _count_cpus(ranges: str | None) -> int | None:
    """Return the number of CPUs in a list such as ``0-31,64-95``, which may be empty; None if it is not one."""
    if ranges == "":
        return 0
    total = 0
    for part in (ranges or "").split(","):
        first, _, last = part.partition("-")
        if not first.strip().isdecimal() or not (last or first).strip().isdecimal():
            return None
        total += int(last or first) - int(first) + 1
    return total


def vcpus_for_each(shares: Sequence[HostShare], reserve: int) -> int | None:
    """Return the vCPUs for each GPU on the host that has fewest; an even number if more than one.

    :param reserve: logical CPUs to keep for the host.
    :return: None if no host's CPUs are known, or if fewer than one remains.
    """
    least = min([(s.cpus - reserve) // s.gpu_count for s in shares if s.cpus is not None], default=0)
    return None if least < 1 else least if least == 1 else least // 2 * 2


def ram_for_each(shares: Sequence[HostShare], reserve: int) -> int | None:
    """Return the MiB for each GPU on the host that has least, rounded down to GiB.

    :param reserve: MiB to keep for the host.
    :return: None if no host's memory is known, or if less than 1 GiB remains.
    """
    amounts = [(s.memory_mib - reserve) // s.gpu_count for s in shares if s.memory_mib is not None]
    least = min(amounts, default=0)
    return least // 1024 * 1024 if least >= 1024 else None


def bars(gpu: Gpu) -> tuple[int, ...]:
    """Return the sizes of the BARs that the firmware of an instance places above 4 GiB."""
    sizes = [bar.size for bar in gpu.main.bars if bar.prefetchable and not bar.io and bar.bits == 64 and bar.size > 0]
    return tuple(1 << (size - 1).bit_length() for size in sizes)
