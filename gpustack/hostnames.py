"""Names of hosts: when two are of one host for certain, and when they may be."""

from __future__ import annotations

import ipaddress


def same(one: str, other: str) -> bool:
    """Whether two names are the same, in upper or lower case."""
    return one.casefold() == other.casefold()


def short(name: str) -> str:
    """The name without its domain, to compare: hosts whose short names differ are not the same. An address is whole."""
    folded = name.casefold()
    try:
        return str(ipaddress.ip_address(folded))
    except ValueError:
        return folded.partition(".")[0]


def extends(one: str, other: str) -> bool:
    """Whether two names are the same, or one is the other with a domain behind it."""
    one, other = one.casefold(), other.casefold()
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")
