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


class _Template(string.Template):
    idpattern = r"[_a-z][\._a-z0-9]*"


class _Options:
    """The values of options by ``group/name``, looked up as from one group; notes what it was asked for."""

    def __init__(self, values: Mapping[str, str], group: str, depth: int) -> None:
        self.named: list[str] = []
        self.unknown: list[str] = []
        self._values = values
        self._group = group
        self._depth = depth

    def __getitem__(self, name: str) -> str:
        self.named.append(name)
        first, separator, rest = name.partition(".")
        places = (f"{first}/{rest}",) if separator else (f"{self._group}/{name}", f"DEFAULT/{name}")
        place = next((place for place in places if place in self._values), None)
        if place is None or self._depth == 0:
            self.unknown.append(name)
            raise KeyError(name)
        inner = _Options(self._values, place.partition("/")[0], self._depth - 1)
        text = _filled(self._values[place], inner)
        self.unknown += inner.unknown
        return text


def substituted(value: str, group: str, values: Mapping[str, str]) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """A value with what it names put in, the names, and those of them that ``values`` does not tell.

    :param group: the group of the option that has the value.
    :param values: the last value of each option in the files, by ``group/name``.
    """
    options = _Options(values, group, _DEPTH)
    return _filled(value, options), tuple(dict.fromkeys(options.named)), tuple(dict.fromkeys(options.unknown))


def _filled(value: str, options: _Options) -> str:
    return _Template(value.replace(r"\$", "$$")).safe_substitute(options)  # type: ignore[arg-type]  # only read
