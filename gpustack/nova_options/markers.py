"""The markers of gpustack's own lines in configuration files."""

from collections.abc import Sequence

from gpustack.base.errors import NovaConfigError

DROP_IN = "300-gpustack.conf"
CONTROL = "control"
"""The directory of rendered drop-in files for the hosts of nova-api, nova-scheduler and nova-conductor."""
MARK = "# Written by gpustack"
BEGIN = "# BEGIN gpustack: change the spec and render again"
END = "# END gpustack"
BLAZAR = "{{ ',BlazarFilter' if enable_blazar | default(false) | bool else '' }}"
"""Appended to a rendered list of filters that replaces kolla-ansible's own. Overrides are templates too."""


def own_lines(text: str) -> Sequence[bool]:
    """For each line, whether gpustack wrote it; never for a block whose markers are incomplete."""
    inside = owned = text.startswith(MARK)
    has_block = _is_whole(text)
    lines = []
    for line in text.split("\n"):
        inside = owned or (has_block and (line.startswith(BEGIN) or (inside and not line.startswith(END))))
        lines.append(inside)
    return lines


def has_ours(text: str) -> bool:
    """Whether gpustack wrote the file, or a block in it."""
    return text.startswith(MARK) or bool(_markers(text))


def _markers(text: str) -> list[str]:
    return [marker for line in text.splitlines() for marker in (BEGIN, END) if line.startswith(marker)]


def _is_whole(text: str) -> bool:
    """Whether each line that begins a block is followed by one that ends it."""
    markers = _markers(text)
    return markers == [BEGIN, END] * (len(markers) // 2)


def without_block(text: str, where: str) -> str:
    """The text without gpustack's block.

    :param where: the file, for the error.
    :raises NovaConfigError: if a marker is missing: the operator's lines can't be distinguished from gpustack's.
    """
    if not _is_whole(text):
        raise NovaConfigError(
            f"one of the two lines is missing that enclose gpustack's block: {BEGIN!r} and {END!r}",
            where=where,
            remedy="add the missing line again, or delete gpustack's lines and the remaining one",
        )
    outside, inside = [], False
    for line in text.splitlines(keepends=True):
        if line.startswith(BEGIN):
            inside = True
        if not inside:
            outside.append(line)
        if line.startswith(END):
            inside = False
    return "".join(outside)


def ended_as(file: str, text: str) -> str:
    """A text for a file, with the line ends of its first line."""
    return text.replace("\n", "\r\n") if file.partition("\n")[0].endswith("\r") else text


def without_ours(text: str, where: str) -> str:
    """The text without gpustack's lines; empty for a file that gpustack wrote as a whole."""
    return "" if text.startswith(MARK) else without_block(text, where)
