"""Whether the memory pages that a flavor requests exist on a host: ``hw:mem_page_size`` as Nova reads it.

Source: ``nova/virt/hardware.py``, ``_get_numa_pagesize_constraint``, ``_numa_cell_supports_pagesize_request``;
``nova/objects/numa.py``, ``can_fit_pagesize``.
"""

import re
from collections.abc import Mapping, Sequence

_UNITS = {None: 0, "K": 1, "M": 2, "G": 3, "T": 4}
_SIZE = re.compile(r"([0-9]+)(?:([KMGT])i?)?(b|bit|B)")
"""oslo.utils, ``string_to_bytes`` with its default units."""

Pages = Mapping[int, int]
"""The number of huge pages on a NUMA node, by their size in KiB."""


def size_kib(request: str) -> int | None:
    """Return the page size of ``1GB`` or ``2048`` (KiB) in KiB; None for any other request."""
    if request.isdecimal():
        return int(request)
    if (match := _SIZE.fullmatch(request)) is None:
        return None
    in_bytes = int(match[1]) * 1024 ** _UNITS[match[2]] // (1 if match[3] == "B" else 8)
    return in_bytes // 1024 or None


def needs_huge_pages(request: str | None) -> bool:
    """Whether instances of this ``hw:mem_page_size`` start on huge pages only."""
    size = size_kib(request or "")
    return request == "large" or (size is not None and size > 64)


def matching(request: str, pages: Pages) -> Pages:
    """Return the huge pages of a requested size, as far as there are any."""
    size = size_kib(request)
    return {kib: count for kib, count in pages.items() if count > 0 and size in (None, kib)}


def fit(request: str, *, ram_mib: int, nodes: int, host: Sequence[Pages]) -> bool:
    """Whether the memory of an instance fits into the huge pages of a host that runs no other instance.

    :param nodes: the number of NUMA nodes of the instance, each within one node of the host.
    """
    kib = -(-ram_mib // nodes) * 1024
    holding = [
        node
        for node in host
        if any(kib <= size * count and kib % size == 0 for size, count in matching(request, node).items())
    ]
    return len(holding) >= nodes
