"""Check by the hosts' facts whether a flavor can fit a host, and what its instances would lack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpustack.codes import Code
from gpustack.findings import Finding, finding
from gpustack.flavor.flavors import Sizes, readable
from gpustack.flavor.shares import HostShare, bar_bytes
from gpustack.spec.flavors import Flavor

GIB = 1 << 30
GUEST_BITS = 40
"""Physical address bits of a guest by QEMU's default (``target/i386/cpu.h``)."""
WINDOW = 1 << (GUEST_BITS - 3)
"""The part of the address space in which the guest's firmware places 64-bit BARs: an eighth of it.

Source: ``OvmfPkg/Library/PlatformInitLib/MemDetect.c``, ``PlatformDynamicMmioWindow``.
"""
_STRICT = ("required",)


def fitting(
    *,
    name: str,
    flavor: Flavor,
    models: Mapping[str, int],
    sizes: Sizes,
    nodes: int | None,
    policy: str | None,
    shares: Sequence[HostShare],
    knows_maxphysaddr: bool,
) -> Iterator[Finding]:
    """Yield the findings about one flavor.

    :param models: the number of GPUs by model.
    :param nodes: the number of NUMA nodes of its instances; None if not set.
    :param policy: the effective PCI NUMA affinity policy: the flavor's, or its model's.
    :param shares: the hosts' shares; without any, only findings that do not depend on hosts.
    :param knows_maxphysaddr: whether the release supports the extra spec ``hw:maxphysaddr_mode``.
    """
    topology = nodes or (1 if flavor.has_numa_nodes else None)
    if nodes and (sizes.vcpus % nodes or sizes.ram % nodes):
        yield finding(Code.FLAVOR_NUMA_UNEVEN, place=name, vcpus=sizes.vcpus, ram=sizes.ram, nodes=nodes)
    if flavor.numa.policy and topology is None:
        yield finding(Code.FLAVOR_NUMA_POLICY_UNUSED, place=name, policy=flavor.numa.policy)
    if not shares:
        return
    yield from _on_hosts(name, models, sizes, topology, policy, shares)
    if flavor.maxphysaddr is None:
        yield from _address_space(name, models, sizes, shares, knows_maxphysaddr)


def _on_hosts(
    name: str,
    models: Mapping[str, int],
    sizes: Sizes,
    topology: int | None,
    policy: str | None,
    shares: Sequence[HostShare],
) -> Iterator[Finding]:
    holding = [share for share in shares if share.has(models)]
    if not holding:
        best = max(shares, key=lambda s: sum(min(len(s.gpus.get(m, ())), c) for m, c in models.items()))
        most = ", ".join(f"{len(best.gpus.get(model, ()))} of {model}" for model in models)
        request = ", ".join(f"{count} of {model}" for model, count in models.items())
        yield finding(Code.FLAVOR_WITH_TOO_MANY_GPUS, place=name, asked=request, most=most, host=best.host)
        return
    large = [s for s in holding if sizes.vcpus <= (s.cpus or sizes.vcpus) and sizes.ram <= (s.memory_mib or sizes.ram)]
    if not large:
        most_cpus = max(share.cpus or 0 for share in holding)
        most_ram = readable(max(share.memory_mib or 0 for share in holding))
        yield finding(Code.FLAVOR_FITS_NO_HOST, place=name, sizes=sizes, cpus=most_cpus, ram=most_ram)
        return
    known = [share for share in large if share.nodes]
    if topology is not None and known and not any(_fits_nodes(s, models, sizes, topology, policy) for s in known):
        strict = f", with its GPUs on the same nodes ({policy})" if policy in _STRICT else ""
        vcpus, ram = -(-sizes.vcpus // topology), readable(-(-sizes.ram // topology))
        yield finding(Code.FLAVOR_FITS_NO_NUMA_NODES, place=name, nodes=topology, strict=strict, vcpus=vcpus, ram=ram)


def _fits_nodes(share: HostShare, models: Mapping[str, int], sizes: Sizes, nodes: int, policy: str | None) -> bool:
    """Whether a host has this many NUMA nodes of sufficient size, with the GPUs on them if ``required``."""
    vcpus, ram = -(-sizes.vcpus // nodes), -(-sizes.ram // nodes)
    large = [n for n in share.nodes.values() if vcpus <= (n.cpus or vcpus) and ram <= (n.memory_mib or ram)]
    if len(large) < nodes:
        return False
    if policy not in _STRICT:
        return True
    ranked = sorted(large, key=lambda n: -sum(n.gpus.get(model, 0) for model in models))[:nodes]
    return all(sum(node.gpus.get(model, 0) for node in ranked) >= count for model, count in models.items())


def _address_space(
    name: str, models: Mapping[str, int], sizes: Sizes, shares: Sequence[HostShare], knows: bool
) -> Iterator[Finding]:
    """Yield a finding if the BARs of the GPUs and the memory exceed a guest with 40 address bits."""
    most = 0
    for share in shares:
        bars = [
            sum(sorted((bar_bytes(gpu) for gpu in share.gpus.get(model, ())), reverse=True)[:count])
            for model, count in models.items()
        ]
        most = max(most, sum(bars))
    if most > WINDOW or most + (sizes.ram << 20) > 1 << GUEST_BITS:
        remedy = (
            "set maxphysaddr: passthrough in the flavor"
            if knows
            else "let nova-compute run with [libvirt] cpu_mode = host-passthrough, and check what its guests see"
        )
        yield finding(
            Code.FLAVOR_BARS_TOO_LARGE,
            place=name,
            bars=-(-most // GIB),
            bits=GUEST_BITS,
            ram=readable(sizes.ram),
            advice=remedy,
        )
