"""``gpustack scan``: list the GPUs of hosts, and whether they are available for passthrough."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cliff.columns import FormattableColumn

from gpustack.base.errors import UsageError
from gpustack.base.findings import Severity
from gpustack.base.text import printable
from gpustack.cli.common import THIS_MACHINE, Lister, add_source_options, gather, is_for_machines, tell_failures

if TYPE_CHECKING:
    from gpustack.hosts.facts.gather import Gathered
    from gpustack.hosts.facts.model import Host
    from gpustack.hosts.readiness.table import HostRows


_NICS = "nics"
"""The column of NICs near a GPU."""


class TableCell(FormattableColumn[Any]):
    """A field with a text for people, sorted by its value."""

    def __init__(self, value: object, text: str) -> None:
        super().__init__(value)
        self._text = printable(text, keep="")

    def human_readable(self) -> str:
        return self._text

    def machine_readable(self) -> str:
        """The text: the formats that use this (csv, value) have no structure."""
        return self._text

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, TableCell):
            return NotImplemented
        value, other_value = self._value, other._value
        if type(value) is type(other_value) and isinstance(value, int | str):
            return bool(value < other_value)
        return (value is not None, self._text) < (other_value is not None, other._text)


class ScanCommand(Lister):
    """List the GPUs of hosts: cards, drivers, IOMMU groups, NUMA nodes, and whether they are ready for passthrough.

    The column Ready is yes, or has the codes of the reasons. The reasons and remedies are printed on stderr. -f json
    prints all fields of each GPU; -c selects from these fields in any format.
    """

    epilog = """\
gpustack scan; gpustack scan gpu-[01:04] --sudo; gpustack scan --root /mnt/image;
gpustack scan gpu01 --save gpu01.json, then anywhere: gpustack scan --snapshot gpu01.json"""

    _gathered: Gathered
    _scanned: tuple[HostRows, ...] = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_source_options(parser, THIS_MACHINE)
        parser.add_argument(
            "--save",
            type=Path,
            metavar="FILE",
            help="save the facts of the hosts as a snapshot, readable by its owner only",
        )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], list[list[Any]]]:
        from gpustack.hosts.facts.store import save_snapshot
        from gpustack.hosts.readiness.table import COLUMNS, FIELDS, by_host, describe, text

        self._gathered = gather(self, parsed_args)
        if parsed_args.save and self._gathered.raw:
            save_snapshot(parsed_args.save, self._gathered.raw)
        self._scanned = by_host(self._gathered.hosts)
        rows = [row for of_host in self._scanned for row in of_host.rows]
        described = []
        for of_host in self._scanned:
            near = _nics(of_host.host)
            described += [{**describe(row), _NICS: near.get(row.gpu.main.address, [])} for row in of_host.rows]
        known = (*FIELDS, _NICS)
        keys = _chosen(parsed_args.columns, COLUMNS, known)
        parsed_args.columns = []
        if is_for_machines(parsed_args):
            keys = keys or list(known)
            return keys, [[fields[key] for key in keys] for fields in described]
        keys = keys or list(COLUMNS)
        titles = [COLUMNS.get(key, key) for key in keys]
        return titles, [
            [
                TableCell(fields[key], _names(fields[key]) if key == _NICS else text(row, key, fields[key]))
                for key in keys
            ]
            for row, fields in zip(rows, described, strict=True)
        ]

    def after(self, parsed_args: argparse.Namespace) -> int:
        """Report the findings, and the hosts that could not be read."""
        for of_host in self._scanned:
            if not of_host.rows:
                self.report(f"{of_host.host.hostname}: no GPU among its {len(of_host.host.pci)} PCI functions")
        readiness = [row.readiness for of_host in self._scanned for row in of_host.rows]
        reasons = [f for of_host in self._scanned for f in of_host.reasons]
        reasons += [f for of_gpu in readiness for f in of_gpu.reasons]
        notes = [f for of_gpu in readiness for f in of_gpu.notes]
        self.report_findings([*reasons, *(f for f in notes if self.verbosity > 1 or f.severity is not Severity.INFO)])
        failures = self._gathered.failures
        tell_failures(self, failures, len(failures) + len(self._gathered.hosts))
        return 0


def _nics(host: Host) -> dict[str, list[dict[str, object]]]:
    """The NICs on the NUMA node of each GPU, the nearest first, by the address of the GPU."""
    from gpustack.hosts.topology.build import topology
    from gpustack.hosts.topology.distance import near_nics

    return {
        gpu: [
            {
                "address": nic.address,
                "distance": distance.value,
                "interfaces": [interface.name for interface in nic.function.uses.net],
                "infiniband": list(nic.function.uses.infiniband),
            }
            for nic, distance in near
        ]
        for gpu, near in near_nics(topology(host)).items()
    }


def _names(nics: object) -> str:
    """The NICs by their RDMA device, interface or address: ``mlx5_0 PIX, ens2f0 NODE``."""
    listed = cast("list[dict[str, Any]]", nics)
    names = (((*nic["infiniband"], *nic["interfaces"], nic["address"])[0], nic["distance"]) for nic in listed)
    return ", ".join(map(" ".join, names)) or "-"


def _chosen(requested: Sequence[str], titles: Mapping[str, str], known: Sequence[str]) -> list[str]:
    """The keys of the requested columns, given by key or title, in the order of the listing.

    :raises UsageError: when a column is unknown.
    """
    names = {**{key: key for key in known}, **{_normal(title): key for key, title in titles.items()}}
    unknown = [name for name in requested if _normal(name) not in names]
    if unknown:
        raise UsageError(f"there is no column {' or '.join(map(repr, unknown))}", remedy=f"columns: {', '.join(known)}")
    wanted = {names[_normal(name)] for name in requested}
    return [key for key in known if key in wanted]


def _normal(name: str) -> str:
    return name.strip().lower().replace(" ", "_")
