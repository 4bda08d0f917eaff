"""Check by the hosts' facts whether a flavor can fit a host, and what its instances would lack.

The GPUs of an x86 instance whose BARs its firmware can place: the laws of OVMF (UEFI) and SeaBIOS (BIOS).

``make lab TEST=bars`` measures both. OVMF has an eighth of the address space for 64-bit BARs, SeaBIOS all of it beyond
the RAM. In both, GPUs without room are dropped, one after another. Each GPU is behind a PCIe root port, whose window
is aligned to the largest BAR.

Source: edk2, ``OvmfPkg/Library/PlatformInitLib/MemDetect.c``; SeaBIOS, ``src/fw/pciinit.c``.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum

from gpustack.base.findings import Code, Finding, finding
from gpustack.cloud.flavors import Sizes, readable
from gpustack.nova_options.options import TRUE
from gpustack.offer.flavor.shares import HostShare, bars
from gpustack.spec.extra_specs import MAXPHYSADDR, MAXPHYSADDR_BITS, PAGE_SIZE, SECURE_BOOT
from gpustack.spec.flavors import Flavor
from gpustack.spec.memory_pages import fit, matching, needs_huge_pages
from gpustack.spec.requests import Entry

DEFAULT_BITS = 40
"""Physical address bits of an instance by QEMU's default (``target/i386/cpu.h``)."""
OTHER_PORTS = 16
"""Root ports of an instance for its other devices, as libvirt makes them on q35, generously counted."""
GIB = 1 << 30
_MOST_OVMF_BITS = 46
_OVMF_CLASSIC_WINDOW = 32 * GIB
"""OVMF's window if it does not trust the address width, or if the RAM reaches into the eighth."""
_INTEL_BITS = (36, 39)
"""The widths below 41 bits that OVMF trusts on an Intel processor: 40 is QEMU's default, not a real width."""
_PORT_SHARE = 8
"""OVMF reserves at least 2**-8 of the eighth for each root port: 512 MiB with 40 bits."""
_HOLE = 2 * GIB
"""The addresses below 4 GiB that q35 leaves to devices: RAM continues above 4 GiB."""

Bars = Sequence[int]
"""The sizes of one GPU's 64-bit prefetchable BARs, in bytes."""


class Firmware(Enum):
    """The firmware of an instance; the value is its name in messages."""

    OVMF = "UEFI"
    SEABIOS = "BIOS"


def placed(
    firmware: Firmware,
    gpus: Sequence[Bars],
    *,
    ram: int,
    bits: int = DEFAULT_BITS,
    vendor: str | None = None,
    other_ports: int = OTHER_PORTS,
) -> int:
    """Return the number of GPUs that get all of their BARs.

    :param ram: in bytes.
    :param bits: the address width of the virtual processor.
    :param vendor: the processor's vendor by CPUID, such as ``GenuineIntel``.
    """
    if firmware is Firmware.SEABIOS:
        return _count(gpus, start=ram + _HOLE, limit=1 << bits, spare=0)
    window, dynamic = _ovmf_window(ram, bits, vendor)
    port = window >> _PORT_SHARE if dynamic else 0
    return _count(gpus, start=0, limit=window - (len(gpus) + other_ports) * port, spare=port)


def _ovmf_window(ram: int, bits: int, vendor: str | None) -> tuple[int, bool]:
    """Return OVMF's window, and whether it is the eighth."""
    trusted = bits > DEFAULT_BITS or vendor != "GenuineIntel" or bits in _INTEL_BITS
    space = 1 << min(bits, _MOST_OVMF_BITS)
    eighth = space >> 3
    end_of_ram = _aligned(ram + _HOLE, _OVMF_CLASSIC_WINDOW)
    if trusted and eighth > _OVMF_CLASSIC_WINDOW and end_of_ram + eighth < space:
        return eighth, True
    return _OVMF_CLASSIC_WINDOW, False


def _count(gpus: Sequence[Bars], *, start: int, limit: int, spare: int) -> int:
    """Count the GPUs that fit between two addresses, the largest first; each leaves ``spare``, its port's reserve."""
    count = 0
    for sizes in sorted(gpus, key=lambda sizes: (max(sizes, default=0), sum(sizes)), reverse=True):
        end = _aligned(start, max(sizes)) + sum(sizes) if sizes else start
        if end <= limit + spare or not sizes:
            count, start, limit = count + 1, end, limit + spare
    return count


def _aligned(address: int, alignment: int) -> int:
    return -(-address // alignment) * alignment


def fitting(
    entry: Entry,
    sizes: Sizes,
    shares: Sequence[HostShare],
    *,
    nodes: int | None,
    policy: str | None,
    networks: Collection[str],
    knows_maxphysaddr: bool,
) -> Iterator[Finding]:
    """Yield the findings about one flavor.

    :param shares: the hosts' shares; without any, only findings that do not depend on hosts.
    :param nodes: the number of NUMA nodes of its instances; None if not set.
    :param policy: the effective PCI NUMA affinity policy: the flavor's, or its model's.
    :param networks: the networks whose ports require NUMA nodes of the instance too.
    :param knows_maxphysaddr: whether the release supports the extra spec ``hw:maxphysaddr_mode``.
    """
    name, flavor = entry.name, entry.flavor
    topology = nodes or (1 if flavor.has_numa_nodes else None)
    if nodes and (sizes.vcpus % nodes or sizes.ram % nodes):
        yield finding(Code.FLAVOR_NUMA_UNEVEN, place=name, vcpus=sizes.vcpus, ram=sizes.ram, nodes=nodes)
    if flavor.numa.policy and topology is None:
        yield finding(Code.FLAVOR_NUMA_POLICY_UNUSED, place=name, policy=flavor.numa.policy)
    if not shares:
        return
    yield from _on_hosts(entry, sizes, shares, topology, policy)
    if topology == 1 and policy == "required":
        yield from _beside_networks(entry, networks, shares)
    yield from _address_space(entry, sizes, shares, knows_maxphysaddr)


def _on_hosts(
    entry: Entry, sizes: Sizes, shares: Sequence[HostShare], topology: int | None, policy: str | None
) -> Iterator[Finding]:
    name, models = entry.name, entry.models
    if not (holding := [share for share in shares if share.has(models)]):
        best = max(shares, key=lambda s: sum(min(s.most(m), c) for m, c in models.items()))
        most = ", ".join(f"{best.most(model)} of {model}" for model in models)
        request = ", ".join(f"{count} of {model}" for model, count in models.items())
        yield finding(Code.FLAVOR_WITH_TOO_MANY_GPUS, place=name, asked=request, most=most, host=best.host)
        return
    large = [s for s in holding if sizes.vcpus <= (s.cpus or sizes.vcpus) and sizes.ram <= (s.memory_mib or sizes.ram)]
    if not large:
        most_cpus = max(share.cpus or 0 for share in holding) or "?"
        most_ram = max(share.memory_mib or 0 for share in holding)
        ram = readable(most_ram) if most_ram else "? MiB"
        yield finding(Code.FLAVOR_FITS_NO_HOST, place=name, sizes=sizes, cpus=most_cpus, ram=ram)
        return
    known = [share for share in large if share.nodes]
    if topology is not None and known and not any(_fits_nodes(s, models, sizes, topology, policy) for s in known):
        strict = f", with its GPUs on the same nodes ({policy})" if policy == "required" else ""
        vcpus, ram = -(-sizes.vcpus // topology), readable(-(-sizes.ram // topology))
        yield finding(Code.FLAVOR_FITS_NO_NUMA_NODES, place=name, nodes=topology, strict=strict, vcpus=vcpus, ram=ram)
    page_size = entry.flavor.mem_page_size or entry.flavor.extra_specs.get(PAGE_SIZE)
    yield from memory_pages(name, page_size, sizes, topology or 1, large)


def _beside_networks(entry: Entry, networks: Collection[str], shares: Sequence[HostShare]) -> Iterator[Finding]:
    """Networks without a virtual function on any NUMA node that has the GPUs; they have some elsewhere."""
    present = {network for share in shares for network in share.networks}
    nodes = [node for share in shares for node in share.nodes.values()]
    wanted = entry.models.items()
    fitting = [node for node in nodes if all(node.gpus.get(model, 0) >= count for model, count in wanted)]
    for network in networks if fitting else ():
        if network in present and not any(network in node.networks for node in fitting):
            yield finding(Code.GPU_AND_NIC_NEVER_NEAR, place=entry.name, network=network)


def _fits_nodes(share: HostShare, models: Mapping[str, int], sizes: Sizes, nodes: int, policy: str | None) -> bool:
    """Whether a host has this many NUMA nodes of sufficient size, with the GPUs on them if ``required``."""
    vcpus, ram = -(-sizes.vcpus // nodes), -(-sizes.ram // nodes)
    large = [
        node
        for node in share.nodes.values()
        if (node.cpus is None or vcpus <= node.cpus) and (node.memory_mib is None or ram <= node.memory_mib)
    ]
    if len(large) < nodes:
        return False
    if policy != "required":
        return True
    ranked = sorted(large, key=lambda n: -sum(n.gpus.get(model, 0) for model in models))[:nodes]
    return all(sum(node.gpus.get(model, 0) for node in ranked) >= count for model, count in models.items())


def _address_space(entry: Entry, sizes: Sizes, shares: Sequence[HostShare], knows: bool) -> Iterator[Finding]:
    """Yield a finding if the firmware of an instance has no room for the BARs of all GPUs on some x86 host."""
    fewest: dict[Firmware, tuple[int, HostShare]] = {}
    flavor, models, firmwares = entry.flavor, entry.models, _firmwares(entry.flavor)
    for share in shares:
        bits = _bits(flavor, share)
        if share.architecture not in (None, "x86_64") or bits is None:
            continue
        for firmware in firmwares:
            count = _placed(firmware, models, sizes, share, bits)
            if count < fewest.get(firmware, (entry.count, share))[0]:
                fewest[firmware] = count, share
    if not fewest:
        return
    share = next(iter(fewest.values()))[1]
    bits = _bits(flavor, share)
    results = [(firmware, fewest[firmware][0] if firmware in fewest else entry.count) for firmware in firmwares]
    yield finding(
        Code.FLAVOR_BARS_TOO_LARGE,
        place=entry.name,
        bars=-(-sum(map(sum, _largest(models, share))) // GIB),
        bits=bits,
        ram=readable(sizes.ram),
        placed=" and ".join(f"{count} of {entry.count} with {firmware.value} firmware" for firmware, count in results),
        advice=_advice(entry, sizes, shares, knows),
    )


def _firmwares(flavor: Flavor) -> tuple[Firmware, ...]:
    """Return the firmware that the flavor implies, or both: otherwise, only images name it (hw_firmware_type)."""
    specs = flavor.extra_specs
    encrypted = specs.get("hw:mem_encryption", "").lower() in TRUE
    uefi = flavor.is_windows or flavor.secure_boot or specs.get(SECURE_BOOT) == "required" or encrypted
    return (Firmware.OVMF,) if uefi else (Firmware.OVMF, Firmware.SEABIOS)


def _bits(flavor: Flavor, share: HostShare) -> int | None:
    """Return the address width of an instance on a host; None if unknown."""
    width = flavor.extra_specs.get(MAXPHYSADDR_BITS, "")
    if _mode(flavor) == "emulate" and width.isdecimal():
        return int(width)
    return share.processor.physical_address_bits if _mode(flavor) == "passthrough" else DEFAULT_BITS


def _mode(flavor: Flavor) -> str | None:
    return flavor.maxphysaddr or flavor.extra_specs.get(MAXPHYSADDR)


def _largest(models: Mapping[str, int], share: HostShare) -> list[tuple[int, ...]]:
    """Return the BARs of the host's GPUs with the largest ones, as many as requested."""
    return [
        gpu
        for model, count in models.items()
        for gpu in sorted((bars(gpu) for gpu in share.gpus.get(model, ())), key=sum, reverse=True)[:count]
    ]


def _placed(firmware: Firmware, models: Mapping[str, int], sizes: Sizes, share: HostShare, bits: int) -> int:
    gpus = _largest(models, share)
    found = placed(firmware, gpus, ram=sizes.ram << 20, bits=bits, vendor=share.processor.vendor)
    return found + sum(models.values()) - len(gpus)


def _advice(entry: Entry, sizes: Sizes, shares: Sequence[HostShare], knows: bool) -> str:
    fewer = "request fewer GPUs for each instance"
    if _mode(entry.flavor) == "passthrough":
        return fewer
    widths = [(share, share.processor.physical_address_bits) for share in shares]
    for firmware in _firmwares(entry.flavor):
        if any(bits and _placed(firmware, entry.models, sizes, share, bits) < entry.count for share, bits in widths):
            return f"{fewer}: the address width of the hosts is too small as well"
    if knows:
        return "set maxphysaddr: passthrough in the flavor"
    return "set [libvirt] cpu_mode = host-passthrough for nova-compute, and check the address width in an instance"


def memory_pages(
    name: str, page_size: str | None, sizes: Sizes, nodes: int, shares: Sequence[HostShare]
) -> Iterator[Finding]:
    """Yield a finding if no host has the huge pages of a flavor, or if hosts have too little RAM beside theirs.

    :param page_size: the value of ``hw:mem_page_size``; None if not set.
    :param nodes: the number of NUMA nodes of an instance.
    """
    known = [(share, share.huge_pages) for share in shares if share.huge_pages is not None]
    if page_size is None or page_size == "small":
        yield from _beside(name, sizes, known)
        return
    if not known or len(known) < len(shares) or not needs_huge_pages(page_size):
        return
    if any(fit(page_size, ram_mib=sizes.ram, nodes=nodes, host=pages) for _, pages in known):
        return
    if not any(matching(page_size, node) for _, pages in known for node in pages):
        there = sorted({size for _, pages in known for node in pages for size in matching("large", node)})
        present = " and ".join(map(_size, there)) or "none"
        yield finding(Code.HUGE_PAGES_MISSING, place=name, size=page_size, present=present)
        return
    share, pages = max(known, key=lambda entry: max(_mib(matching(page_size, node)) for node in entry[1]))
    yield finding(
        Code.HUGE_PAGES_TOO_FEW,
        place=name,
        ram=readable(-(-sizes.ram // nodes)),
        size=page_size,
        nodes=nodes,
        host=share.host,
        most=", ".join(
            f"{count} x {_size(size)}" for node in pages for size, count in matching(page_size, node).items()
        ),
    )


def _beside(
    name: str, sizes: Sizes, known: Sequence[tuple[HostShare, Sequence[Mapping[int, int]]]]
) -> Iterator[Finding]:
    """Yield a finding for the host with the least RAM outside huge pages, if an instance does not fit into it."""
    free = [(share.memory_mib - sum(map(_mib, pages)), share) for share, pages in known if share.memory_mib is not None]
    least, share = min(free, key=lambda entry: entry[0], default=(sizes.ram, None))
    if share is not None and least < sizes.ram:
        yield finding(
            Code.RAM_IN_HUGE_PAGES, place=name, ram=readable(sizes.ram), host=share.host, rest=readable(max(least, 0))
        )


def _mib(pages: Mapping[int, int]) -> int:
    return sum(size * count for size, count in pages.items()) // 1024


def _size(kib: int) -> str:
    return f"{kib >> 20} GiB" if kib >= 1 << 20 else f"{kib >> 10} MiB" if kib >= 1 << 10 else f"{kib} KiB"
