"""Findings about the memory pages of a flavor on hosts that are otherwise large enough for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpustack.base.codes import Code
from gpustack.base.findings import Finding, finding
from gpustack.offer.flavor.flavors import Sizes, readable
from gpustack.offer.flavor.shares import HostShare
from gpustack.spec.memory_pages import fit, matching, needs_huge_pages


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
