"""Replace ``$name`` in values as oslo.config does (``oslo_config/cfg.py``, ``_substitute``).

``$name`` and ``${name}`` are replaced by the option of that name in the same group, else in ``DEFAULT``;
``$group.name`` by the option of another group. ``$$`` and ``\\$`` are a dollar sign. A ``$`` that begins no name stays.

Findings show values, so a reference to an option that can contain a password is replaced by ``***``, except in the
value of another such option, which no finding shows.
"""

import string
from collections.abc import Mapping

from gpustack.nova_options.options import is_secret

_DEPTH = 8
"""Values may reference further options; deeper references are a cycle, which also stops the service."""


MOST = 1 << 20
"""Limit of the total length of all replaced references, in characters; real configurations need a few hundred."""


_MASK = "***"


class TooLongError(ValueError):
    """Options reference one another until their values are longer than :data:`MOST`."""


class Substitution:
    """Replaces references in the values of one configuration, up to a total length.

    :param values: the last value of each option in the files, by ``group/name``.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values
        self._left = MOST

    def spend(self, text: str) -> None:
        """Subtract a replaced text from the remaining length.

        :raises TooLongError: when nothing remains.
        """
        self._left -= len(text) + 1
        if self._left < 0:
            raise TooLongError

    def fill(self, value: str, path: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """The value with references replaced, the referenced names, and those of them that ``values`` lacks.

        :param path: the option that has the value, as ``group/name``.
        :raises TooLongError: when the total length exceeds :data:`MOST`.
        """
        options = _Options(self, path.partition("/")[0], _DEPTH, secret=is_secret(path))
        filled = _filled(value, options)
        return filled, tuple(dict.fromkeys(options.named)), tuple(dict.fromkeys(options.unknown))


class _Template(string.Template):
    idpattern = r"[_a-z][\._a-z0-9]*"


class _Options:
    """The values of options by ``group/name``, looked up from one group; records the requested names.

    :param secret: whether the value that they become part of may contain a password.
    """

    def __init__(self, of: Substitution, group: str, depth: int, *, secret: bool) -> None:
        self.named: list[str] = []
        self.unknown: list[str] = []
        self._of = of
        self._group = group
        self._depth = depth
        self._secret = secret

    def __getitem__(self, name: str) -> str:
        self.named.append(name)
        prefix, separator, option = name.partition(".")
        candidates = (f"{prefix}/{option}",) if separator else (f"{self._group}/{name}", f"DEFAULT/{name}")
        path = next((path for path in candidates if path in self._of.values), None)
        self._of.spend(name)
        if path is None or self._depth == 0:
            self.unknown.append(name)
            raise KeyError(name)
        inner = _Options(self._of, path.partition("/")[0], self._depth - 1, secret=self._secret)
        text = _MASK if is_secret(path) and not self._secret else _filled(self._of.values[path], inner)
        self._of.spend(text)
        self.unknown += inner.unknown
        return text


def _filled(value: str, options: _Options) -> str:
    return _Template(value.replace(r"\$", "$$")).safe_substitute(options)  # type: ignore[arg-type]  # only read
