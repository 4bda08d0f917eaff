"""What ``$name`` in a value stands for, as oslo.config has it (``oslo_config/cfg.py``, ``_substitute``).

``$name`` and ``${name}`` are replaced by the option of that name in the same group, else in ``DEFAULT``;
``$group.name`` by that of another group. ``$$`` and ``\\$`` stand for a dollar sign, and one that begins no name
for itself.
"""

from __future__ import annotations

import string
from collections.abc import Mapping

_DEPTH = 8
"""Values may name further options; more than this is a circle, at which the service stops."""


MOST = 1 << 20
"""Characters that the references of all files may come to; those of a real configuration come to a few hundred."""


class TooLongError(ValueError):
    """Options name one another until their values are longer than any service could use."""


class Substitution:
    """Fills in what the values of one configuration name, up to a length in all.

    :param values: the last value of each option in the files, by ``group/name``.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values
        self._left = MOST

    def spend(self, text: str) -> None:
        """Take a text that was put in from what is left.

        :raises TooLongError: when nothing is.
        """
        self._left -= len(text) + 1
        if self._left < 0:
            raise TooLongError

    def fill(self, value: str, group: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """A value with what it names put in, the names, and those of them that ``values`` does not tell.

        :param group: the group of the option that has the value.
        :raises TooLongError: when the values grow without measure.
        """
        options = _Options(self, group, _DEPTH)
        filled = _filled(value, options)
        return filled, tuple(dict.fromkeys(options.named)), tuple(dict.fromkeys(options.unknown))


class _Template(string.Template):
    idpattern = r"[_a-z][\._a-z0-9]*"


class _Options:
    """The values of options by ``group/name``, looked up as from one group; notes what it was asked for."""

    def __init__(self, of: Substitution, group: str, depth: int) -> None:
        self.named: list[str] = []
        self.unknown: list[str] = []
        self._of = of
        self._group = group
        self._depth = depth

    def __getitem__(self, name: str) -> str:
        self.named.append(name)
        prefix, separator, option = name.partition(".")
        candidates = (f"{prefix}/{option}",) if separator else (f"{self._group}/{name}", f"DEFAULT/{name}")
        path = next((path for path in candidates if path in self._of.values), None)
        self._of.spend(name)
        if path is None or self._depth == 0:
            self.unknown.append(name)
            raise KeyError(name)
        inner = _Options(self._of, path.partition("/")[0], self._depth - 1)
        text = _filled(self._of.values[path], inner)
        self._of.spend(text)
        self.unknown += inner.unknown
        return text


def _filled(value: str, options: _Options) -> str:
    return _Template(value.replace(r"\$", "$$")).safe_substitute(options)  # type: ignore[arg-type]  # only read
