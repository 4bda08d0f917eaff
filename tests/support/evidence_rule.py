"""The evidence rule: whatever single piece of evidence is removed, added or falsified, no verdict becomes bolder.

It holds in small clouds (``small_cells.py``) and in states of a real Nova, of which the rows of some hosts are loaded
into the first cell of a small cloud; the falsifications know the names there.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gpustack.cloud import placement
from gpustack.cloud.placement import Provider
from gpustack.novadb import read, tables
from gpustack.repair.rules import q_allocation_drift
from support.cellfile import CELL_TABLES, CONDUCTOR, silent
from support.engines import engines_kept
from support.small_cells import FALSIFIED, SELECTION, VM, SmallCloud, answers, honest, set_clock


@contextlib.contextmanager
def small_cloud() -> Iterator[SmallCloud]:
    """A small cloud, whose clock and Placement replace those that clean-up reads."""
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as directory,
        pytest.MonkeyPatch.context() as patch,
        engines_kept(),
    ):
        made = SmallCloud(Path(directory))
        patch.setattr(read, "now", set_clock(made))
        for name in ("providers", "inventory", "allocations_of"):
            patch.setattr(placement, name, getattr(made.placement, name))
        patch.setattr(q_allocation_drift, "stranger", made.placement.stranger)
        yield made


def check(cloud: SmallCloud, what: str) -> Counter[int]:
    """Judge a cloud with each falsification; return how bold its verdicts are without.

    :param what: the cloud, for the message.
    """
    base, planned = cloud.judged(), cloud.repairs
    host_answers = honest(cloud)
    written = {answer: cloud.written(answer) for answer in (host_answers, silent)}
    for name, falsifications in FALSIFIED.items():
        for number, falsify in enumerate(falsifications):
            falsify(cloud)
            judged = cloud.judged()
            bolder = {key: bold for key, bold in judged.items() if bold > base.get(key, 0)}
            assert not bolder, f"{what}, {name} {number}: {bolder}, before {base}"
            # Of the same repairs, of the same questions to hosts, apply writes the same or less.
            for answer, allowed in () if cloud.repairs <= planned else written.items():
                cloud.restore()
                falsify(cloud)
                more = cloud.written(answer) - allowed
                assert not more, f"{what}, {name} {number}: apply writes {more} too"
            cloud.restore()
    for down in (1, 30, 3600, 86400):
        selection = replace(SELECTION, service_down_time=timedelta(seconds=down))
        bolder = {key: bold for key, bold in cloud.judged(selection).items() if bold > base.get(key, 0)}
        assert not bolder, f"{what}, --service-down-time {down}: {bolder}, before {base}"
    for name, answer in answers(host_answers):
        assert cloud.written(answer) <= written[host_answers], f"{what}, the hosts' {name}"
    return Counter(base.values())


def load(cloud: SmallCloud, state: Path, hosts: Sequence[str], now: datetime, *, up: bool) -> None:
    """Fill a cloud with the rows of hosts in a state of a real Nova, as it is found at a time."""
    cloud.clear()
    cloud.began, cloud.hardware = now, {}
    rows = _rows(state, hosts)
    names = {host: f"h{number}" for number, host in enumerate(hosts, 1)}
    names |= {str(node["uuid"]): f"node-{names[node['host']]}" for node in rows["compute_nodes"]}
    names |= {str(service["uuid"]): f"service-{names[service['host']]}" for service in rows["services"]}
    owners = [str(row["uuid"]) for row in rows["instances"]]
    names |= {owners[0]: VM} if owners else {}
    with cloud.cells[0].engine.begin() as connection:
        for table, listed in rows.items():
            renamed = [{key: names.get(value, value) for key, value in row.items()} for row in listed]
            if renamed:
                connection.execute(tables.metadata.tables[table].insert(), renamed)
        services, nodes = tables.services, tables.compute_nodes
        if up:
            reported = {"last_seen_up": now, "updated_at": now, "forced_down": False}
            connection.execute(services.update().values(reported))
            connection.execute(nodes.update().where(nodes.c.deleted == 0).values(updated_at=now))
    for cell in cloud.cells:
        with cell.engine.begin() as connection:
            conductor = tables.services.update().where(tables.services.c.id == CONDUCTOR)
            connection.execute(conductor.values(last_seen_up=now + timedelta(seconds=45)))
    with closing(sqlite3.connect(state / "api.sqlite")) as api:
        mapped = (
            "SELECT instance_uuid FROM instance_mappings m JOIN cell_mappings c ON c.id = m.cell_id"
            " WHERE name = 'cell1'"
        )
        known = {uuid for (uuid,) in api.execute(mapped)} & set(owners)
        placed = {host for (host,) in api.execute("SELECT host FROM host_mappings")} & set(hosts)
    for uuid in known:
        cloud.sql(
            "api", f"INSERT INTO instance_mappings (instance_uuid, cell_id) VALUES ('{names.get(uuid, uuid)}', 1)"
        )
    for host, number in {**{names[host]: 1 for host in placed}, "h4": 2}.items():
        cloud.sql("api", f"INSERT INTO host_mappings (host, cell_id) VALUES ('{host}', {number})")
    cloud.placement.devices = list(_devices(state, names))
    cloud.keep()


Row = Mapping[str, Any]


def _rows(state: Path, hosts: Sequence[str]) -> dict[str, list[Row]]:
    """The rows of hosts: other chains ran in the same cloud."""
    of = {name: tables.metadata.tables[name].c for name in CELL_TABLES}
    with sa.create_engine(f"sqlite:///{state}/cell1.sqlite", poolclass=sa.NullPool).connect() as cell:

        def found(table: str, *where: sa.ColumnElement[bool]) -> list[Row]:
            query = sa.select(tables.metadata.tables[table]).where(sa.or_(*where)).order_by(of[table].id)
            return [dict(row) for row in cell.execute(query).mappings()]

        nodes = found("compute_nodes", of["compute_nodes"].host.in_(hosts))
        devices = found("pci_devices", of["pci_devices"].compute_node_id.in_([node["id"] for node in nodes]))
        ends = (of["migrations"].source_compute.in_(hosts), of["migrations"].dest_compute.in_(hosts))
        uuids = {row["instance_uuid"] for row in (*devices, *found("migrations", *ends)) if row["instance_uuid"]}
        instances = found("instances", of["instances"].uuid.in_(uuids), of["instances"].host.in_(hosts))
        uuids |= {row["uuid"] for row in instances}
        return {
            "compute_nodes": nodes,
            "pci_devices": devices,
            "services": found("services", of["services"].host.in_(hosts)),
            "instances": instances,
            "instance_extra": found("instance_extra", of["instance_extra"].instance_uuid.in_(uuids)),
            "migrations": found("migrations", of["migrations"].instance_uuid.in_(uuids)),
        }


def _devices(state: Path, names: Mapping[str, str]) -> Iterator[Provider]:
    """The devices of the hosts in Placement, with their allocations."""
    held: dict[str, dict[str, int]] = {}
    with closing(sqlite3.connect(state / "placement.sqlite")) as database:
        query = (
            "SELECT p.uuid, a.consumer_id, a.used FROM allocations a"
            " JOIN resource_providers p ON p.id = a.resource_provider_id"
        )
        for uuid, consumer, used in database.execute(query):
            held.setdefault(uuid, {})[names.get(consumer, consumer)] = used
        providers = (
            "SELECT p.uuid, p.name, r.uuid FROM resource_providers p"
            " JOIN resource_providers r ON r.id = p.root_provider_id WHERE p.id <> r.id"
        )
        for uuid, name, root in database.execute(providers):
            host, _, address = name.partition("_")
            if root in names:
                named = f"{names.get(host, host)}_{address}"
                yield Provider(uuid=uuid, name=named, root=names[root], address=address, held=held.get(uuid, {}))
