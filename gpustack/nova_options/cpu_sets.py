"""Lists of processors such as ``0-31,^2``, as Nova reads them."""

MOST = 8192
"""The processors that Linux supports at most (NR_CPUS of arch/x86/Kconfig)."""


class CpuSpecError(ValueError):
    """A list of processors that Nova refuses."""


def cpus(text: str) -> set[int]:
    """The processors of a list such as ``0-31,^2`` (nova/virt/hardware.py, parse_cpu_spec).

    :raises CpuSpecError: when Nova refuses the list.
    """
    included: set[int] = set()
    excluded: set[int] = set()
    for rule in filter(None, map(str.strip, text.split(","))):
        first, separator, last = rule.removeprefix("^").partition("-")
        try:
            start, end = int(first), int(last if separator else first)
        except ValueError as error:
            raise CpuSpecError(f"{rule!r} is no processor and no range") from error
        if start > end:
            raise CpuSpecError(f"the range {rule!r} ends before it begins")
        if end >= MOST and not rule.startswith("^"):
            raise CpuSpecError(f"no host has a processor {end}")
        (excluded if rule.startswith("^") else included).update(range(start, min(end, MOST) + 1))
    return included - excluded
