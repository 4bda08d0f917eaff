"""Common options of ``gpustack cleanup``: databases, the selection of rows, the cloud, facts of hosts."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from gpustack.base.errors import DatabaseError, GpustackError, UsageError
from gpustack.base.known_secrets import hidden
from gpustack.base.text import quoted
from gpustack.cli.common import Command
from gpustack.cli.options import Once, natural, option, pci_address, positive, snapshot_hosts
from gpustack.cloud import Connection

if TYPE_CHECKING:
    from gpustack.novadb.sources import Sources
    from gpustack.repair.plan import CleanupPlan, Selection

URL_VARIABLE = "GPUSTACK_DB_URL"


def device(text: str) -> tuple[str, str]:
    """Parse a device as HOST/ADDRESS."""
    host, slash, address = text.rpartition("/")
    if not slash or not host:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST/ADDRESS")
    return host, pci_address(address)


def class_letter(text: str) -> str:
    """The letter of a class given by letter or name; other text is returned unchanged, and argparse rejects it."""
    from gpustack.repair.classes import lookup

    named = lookup(text)
    return named.letter if named else text


def add_databases(parser: argparse.ArgumentParser) -> None:
    source = parser.add_argument_group("databases").add_mutually_exclusive_group()
    text = "nova.conf of nova-api, or its directory: its API database names every cell (default: /etc/nova)"
    option(source, "--config-file FILE…", text)
    option(
        source,
        "--db-url URL",
        "read only the database of one cell, as in [database] connection of nova.conf; verdicts that need the API "
        f"database are then undecided. Other users can read a command line: for a password, set {URL_VARIABLE} instead",
    )


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the databases, the selection of their rows, the judgement and the cloud."""
    from gpustack.repair.classes import CLASSES

    add_databases(parser)
    group = parser.add_argument_group("selection")
    option(group, "--host HOST…", "check only rows of this host")
    option(group, "--instance UUID", "check only rows of this instance", action=Once)
    add_cells(group, "check only")
    text = "check only this class, by letter or name (B, migration-pinned)"
    option(group, "--class CLASS…", text, dest="classes", type=class_letter, choices=tuple(CLASSES))
    add_judgement(parser)
    add_cloud(parser)


def add_cells(parser: argparse._ActionsContainer, what: str) -> None:
    option(parser, "--cell CELL…", f"{what} this cell, by name or uuid")


def add_judgement(parser: argparse.ArgumentParser) -> None:
    """Add the thresholds for recent, down and stuck."""
    group = parser.add_argument_group("judgement")
    option(group, "--grace S", "ignore rows changed in the last S seconds", type=natural, default=300)
    text = "treat a service as down after S seconds without a report (default: service_down_time of nova.conf, or 60)"
    option(group, "--service-down-time S", text, type=positive)
    option(
        group,
        "--stuck-after S",
        "report work as stuck if it wrote nothing for S seconds and no service runs it (default: %(default)s, "
        "twice the default of nova.conf's long_rpc_timeout)",
        type=natural,
        default=3600,
    )
    option(group, "--unblock HOST/ADDRESS…", "make this blocked device available again (class H)", type=device)
    option(group, "--spec SPEC", "keep the GPUs blocked that out_of_service of this spec lists (class H)")
    option(group, "--stopped HOST…", "confirm that nova-compute of this host is stopped for the repair")


def add_cloud(parser: argparse.ArgumentParser) -> None:
    option(parser, "--os-cloud NAME", "check Placement of this cloud too, for classes Q and S (a name in clouds.yaml)")


def cloud_of(parsed_args: argparse.Namespace) -> Connection | None:
    if not parsed_args.os_cloud:
        return None
    from gpustack.cloud.session import shared

    return shared(parsed_args.os_cloud)


def with_hardware(sources: Sources, parsed_args: argparse.Namespace, report: Callable[[str], None]) -> Sources:
    if not parsed_args.snapshot:
        if parsed_args.compute_config:
            raise UsageError("--compute-config needs --snapshot", remedy="add --snapshot with the facts of the hosts")
        return sources
    from dataclasses import replace

    from gpustack.novadb.hardware import device_specs, hardware

    specs = device_specs(parsed_args.compute_config) if parsed_args.compute_config else None
    return replace(sources, hardware=hardware(snapshot_hosts(parsed_args, report), specs))


def sources_of(command: Command, parsed_args: argparse.Namespace) -> Sources:
    from gpustack.novadb.sources import Sources

    url = parsed_args.db_url or (None if parsed_args.config_file else os.environ.get(URL_VARIABLE))
    if url:
        sources = Sources.from_url(url)
        if parsed_args.db_url and hidden(url) != url:
            command.report(f"the password in --db-url can be read in the list of processes; {URL_VARIABLE} hides it")
    else:
        files = parsed_args.config_file or [Path("/etc/nova")]
        if not parsed_args.config_file and not files[0].exists():
            raise UsageError(
                "neither a configuration nor a database is named, and there is no /etc/nova here",
                remedy=f"name nova-api's configuration with --config-file, or one cell with {URL_VARIABLE} or --db-url",
            )
        sources = Sources.from_nova_conf(files)
    return sources.named(getattr(parsed_args, "cell", None) or ())


def cell_names(sources: Sources) -> str:
    """The cells of databases, for records: their names and uuids, never an address."""
    return ", ".join(f"{cell.name} {cell.uuid or ''}".strip() for cell in sources.all_cells or sources.cells)[:4000]


def instance_uuid(text: str, remedy: str = "openstack server list --all-projects shows it") -> str:
    from gpustack.spec.reclaim import SERVER_PATTERN

    if not re.fullmatch(SERVER_PATTERN, text.lower()):
        raise UsageError(f"{text} is no instance's uuid", remedy=remedy)
    return text.lower()


def selection_of(parsed_args: argparse.Namespace, sources: Sources) -> Selection:
    from gpustack.repair.classes import COMPARED, label
    from gpustack.repair.plan import Selection
    from gpustack.spec.load import load_spec

    classes = getattr(parsed_args, "classes", None) or ()
    for klass, needed in COMPARED.items():
        option = needed.partition(" ")[0]
        if klass in classes and not getattr(parsed_args, option[2:].replace("-", "_"), None):
            remedy = f"gpustack cleanup plan --class {quoted(klass)} "
            raise UsageError(f"class {label(klass)} is not judged without {option}", remedy=remedy + needed)
    down = parsed_args.service_down_time
    hosts, instance = getattr(parsed_args, "host", None), getattr(parsed_args, "instance", None)
    return Selection(
        hosts=frozenset(hosts) if hosts else None,
        instance=instance_uuid(instance) if instance else None,
        classes=frozenset(classes),
        grace=timedelta(seconds=parsed_args.grace),
        service_down_time=timedelta(seconds=down) if down else sources.service_down_time,
        stuck_after=timedelta(seconds=parsed_args.stuck_after),
        stopped=frozenset(parsed_args.stopped),
        gone=frozenset(getattr(parsed_args, "gone", None) or ()),
        unblock=frozenset(parsed_args.unblock),
        out_of_service=load_spec(parsed_args.spec).out_of_service if parsed_args.spec else (),
    )


def require_known_hosts(plan: CleanupPlan, sources: Sources, selection: Selection) -> None:
    """Check that ``--host``, ``--stopped`` and ``--unblock`` name existing hosts, if the plan has no verdicts for them.

    :raises UsageError: when no cell has a compute node of a host.
    """
    from gpustack.novadb.sources import unknown_hosts

    named = {*(selection.hosts or ()), *selection.stopped, *(host for host, _address in selection.unblock)}
    silent = named - {verdict.host for verdict in plan.verdicts}
    if silent and not plan.unread and (missing := unknown_hosts(sources, silent)):
        remedy = "openstack compute service list names them"
        raise UsageError(f"no cell has a compute node of host {min(missing)}", remedy=remedy)


def tell_unread(command: Command, made: CleanupPlan, graver: GpustackError | None = None) -> None:
    """Print the unreadable cells.

    :raises GpustackError: the graver error, if there is one.
    :raises DatabaseError: if a cell is unreadable.
    """
    for _cell, reason in made.unread:
        command.report(reason, error=True)
    if graver is not None:
        raise graver
    if made.unread:
        names = ", ".join(cell for cell, _reason in made.unread)
        raise DatabaseError(f"not checked: cell {names}", remedy="see the reasons above; the other cells were checked")
