"""Compare host names: certain identity, and possible identity.

MySQL, and therefore Nova on it, ignores the case of names. If a wrong "same host" would free a device, compare exactly
(``==``). If a wrong "different hosts" would free a device, compare with :func:`extends`.
"""

import ipaddress
from collections.abc import Collection, Mapping
from typing import TypeVar

Value = TypeVar("Value")


def key(name: str) -> str:
    """The key of a name; names that are the :func:`same` have the same key."""
    return name.casefold()


def same(name: str, other: str) -> bool:
    """Whether two names are equal, ignoring case."""
    return key(name) == key(other)


def head(name: str) -> str:
    """The name without its domain, in its own case. An IP address is returned unchanged."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.partition(".")[0]
    return name


def short(name: str) -> str:
    """The key of the name without its domain, or a normalised IP address. Hosts with different ones are different."""
    folded = key(name)
    try:
        return str(ipaddress.ip_address(folded))
    except ValueError:
        return head(folded)


def extends(name: str, other: str) -> bool:
    """Whether two names are equal, or one is the other followed by a domain; ignores case and spaces at the end."""
    name, other = key(name).rstrip(), key(other).rstrip()
    return name == other or name.startswith(f"{other}.") or other.startswith(f"{name}.")


def may_be_of_one_machine(names: Collection[str], expected: Collection[str]) -> bool:
    """Whether a machine with these names may be a host that has any of the expected names.

    A short name must match. If both are known with a domain, the domain must match too: ``gpu01.az1`` is not
    ``gpu01.az2``. ``localdomain`` is no domain: installers write it.
    """
    pairs = [(name, host) for name in names for host in expected if short(name) == short(host)]
    in_domains = [pair for pair in pairs if all(head(n) != n and not key(n).endswith(".localdomain") for n in pair)]
    return bool(pairs) and (not in_domains or any(extends(*pair) for pair in in_domains))


def index(by_name: Mapping[str, Value]) -> dict[str, Value]:
    """Values by host name, extended by the names' keys, for :func:`find`."""
    return {**{key(name): value for name, value in by_name.items()}, **by_name}


def find(indexed: Mapping[str, Value], name: str) -> Value | None:
    """The value of a host in an :func:`index`: of the exact name, else of one that is the :func:`same`, else None."""
    return indexed[name] if name in indexed else indexed.get(key(name))
