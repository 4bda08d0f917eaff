"""Lists of processors such as ``0-31,^2``, as Nova reads them."""


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
        (excluded if rule.startswith("^") else included).update(range(start, end + 1))
    return included - excluded
