"""The hosts that commands read: by name, and from Ansible's inventory. The spec's groups are resolved here."""

from __future__ import annotations

import argparse
import contextlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from gpustack.base.errors import HostError, UsageError
from gpustack.base.host_groups import pattern
from gpustack.base.text import listed
from gpustack.spec.patterns import HostPattern

if TYPE_CHECKING:
    from gpustack.connect.playbooks.inventory import AnsibleInventory
    from gpustack.spec.model import Spec

Report = Callable[[str], None]
_READING = threading.Lock()


def add_inventory(group: argparse._ArgumentGroup) -> None:
    """Add ``-i``, which :func:`inventory` reads."""
    group.add_argument(
        "-i",
        "--inventory",
        action="append",
        metavar="FILE",
        help="take the hosts from this Ansible inventory, and how to reach them: a file, directory or script; can be"
        " repeated",
    )


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Add ``-l``, which selects from the hosts of ``-i``."""
    parser.add_argument("-l", "--limit", metavar="PATTERN", help="with -i: select hosts by an Ansible host pattern")


def inventory(parsed_args: argparse.Namespace) -> AnsibleInventory:
    """The inventory of ``-i``, read once for a command.

    :raises UsageError: if it can't be read.
    """
    from gpustack.connect.playbooks.inventory import AnsibleInventory

    with _READING:  # the first hosts are reached at the same time
        if "inventory_read" not in parsed_args:
            parsed_args.inventory_read = AnsibleInventory(parsed_args.inventory)
    return parsed_args.inventory_read  # type: ignore[no-any-return]


def inventory_hosts(parsed_args: argparse.Namespace, spec: Spec | None, report: Report) -> list[str]:
    """The hosts that HOST and ``-l`` select from the inventory of ``-i``.

    :param spec: leaves out the hosts that it lacks, unless the command line names them.
    :raises UsageError: if no host is left, or the variables of one can't be read.
    """
    known = inventory(parsed_args)
    names = known.select(getattr(parsed_args, "hosts", ()), getattr(parsed_args, "limit", None), expanded)
    if spec is not None:
        from gpustack.spec.model import with_groups

        called = {name: known.called(name) for name in names}
        spec = with_groups(spec, {called[name]: known.groups(name) for name in names})
        others = f"; {known.known_groups()} (in a spec: group:NAME)"
        names = in_spec(parsed_args, spec, called, report, others)
    for name in names:
        with contextlib.suppress(HostError):  # of one host, which is reported when it is read
            known.settings(name)
    return names


def in_spec(
    parsed_args: argparse.Namespace, spec: Spec, names: Mapping[str, str], report: Report, others: str = ""
) -> list[str]:
    """The hosts that the spec or the command line names; the others are left out, with one line.

    :param names: the hosts, each with its name in the spec.
    :param others: what the hosts can be selected by, for the error.
    :raises UsageError: if no host is left.
    """
    from gpustack.spec.load import load_spec
    from gpustack.spec.model import patterns_for

    given = {*getattr(parsed_args, "hosts", ()), *re.split("[,:]", getattr(parsed_args, "limit", None) or "")}
    lacking = {name: called for name, called in names.items() if name not in given and not patterns_for(spec, called)}
    if names and len(lacking) == len(names):
        remedy = f"hosts of the spec: {listed(list(load_spec(parsed_args.spec).hosts), 12)}{others}"
        problem = f"{parsed_args.spec} names none of these hosts: {pattern(names)}"
        raise UsageError(problem, remedy=remedy)
    if lacking:
        report(f"not in {parsed_args.spec}, left out: {pattern(lacking)}")
    return [name for name in names if name not in lacking]


def expanded(patterns: Iterable[str]) -> list[str]:
    """The hosts with the ranges of ``[user@]gpu-[01:04]`` expanded, without duplicates.

    :raises UsageError: for an invalid range, or a pattern with ``*`` or ``?``, which can't be listed.
    """
    hosts: dict[str, None] = {}
    for named in (part.strip() for given in patterns for part in given.split(",") if part.strip()):
        user, at, name = named.rpartition("@")
        if name.count(":") > 1 and "[" not in name:  # an IPv6 address
            hosts[named] = None
            continue
        try:
            hosts.update((f"{user}{at}{host}", None) for host in HostPattern.parse(name).names())
        except ValueError as error:
            raise UsageError(f"{named!r} names no hosts: {error}") from error
    return list(hosts)
