"""Names of hosts: when two are of one host for certain, and when they may be.

MySQL, and so Nova on it, ignores the case of names. If a wrong "same" frees a device, compare letter by letter
(``==``); if a wrong "not the same" frees a device, compare with :func:`extends`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from typing import TypeVar

Value = TypeVar("Value")


def key(name: str) -> str:
    """A name as a key: names that are the :func:`same` have one key."""
    return name.casefold()


def same(name: str, other: str) -> bool:
    """Whether two names are the same, in upper or lower case."""
    return key(name) == key(other)


def head(name: str) -> str:
    """The name without its domain, as it is written. An address has none."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.partition(".")[0]
    return name


def short(name: str) -> str:
    """The name without its domain, to compare: hosts whose short names differ are not the same. An address is whole."""
    folded = key(name)
    try:
        return str(ipaddress.ip_address(folded))
    except ValueError:
        return head(folded)


def extends(name: str, other: str) -> bool:
    """Whether two names are the same, or one is the other with a domain behind it."""
    name, other = key(name), key(other)
    return name == other or name.startswith(f"{other}.") or other.startswith(f"{name}.")


def may_be_of_one_machine(names: Collection[str], expected: Collection[str]) -> bool:
    """Whether a machine with these names may be a host that has any of the expected names.

    A short name must match. If both are known with a domain, the domain must match too: ``gpu01.az1`` is not
    ``gpu01.az2``. ``localdomain`` is no domain: installers write it.
    """
    pairs = [(name, host) for name in names for host in expected if short(name) == short(host)]
    in_domains = [pair for pair in pairs if all(map(_has_domain, pair))]
    return bool(pairs) and (not in_domains or any(extends(*pair) for pair in in_domains))


def _has_domain(name: str) -> bool:
    return head(name) != name and not key(name).endswith(".localdomain")


def index(by_name: Mapping[str, Value]) -> dict[str, Value]:
    """What is known of hosts, by their names and by the keys of these, for :func:`find`."""
    return {**{key(name): value for name, value in by_name.items()}, **by_name}


def find(indexed: Mapping[str, Value], name: str) -> Value | None:
    """What is known of a host: under the very name, else under one that is the :func:`same`."""
    return indexed[name] if name in indexed else indexed.get(key(name))
