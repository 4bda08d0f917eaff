"""``gpustack scan``: list the GPUs of hosts, and whether they are available for passthrough."""

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import Any

from gpustack.base.columns import Column
from gpustack.base.findings import Severity
from gpustack.cli.common import THIS_MACHINE, Lister, add_each, add_exit_code, add_source_options, gather
from gpustack.cli.options import option
from gpustack.cli.output import Table, report_without_gpus, table
from gpustack.hosts.facts.gpus import is_integrated
from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.store import save_snapshot
from gpustack.hosts.facts.twins import decided
from gpustack.hosts.readiness.table import COLUMNS, HostRows, Row, by_host
from gpustack.hosts.topology.build import near_nics, topology


class ScanCommand(Lister):
    """List the GPUs of hosts: cards, drivers, IOMMU groups, NUMA nodes, and whether they are ready for passthrough.

    The column Ready is yes, or has the codes of the reasons. The reasons and remedies are printed on stderr. -f json
    prints all fields of each GPU; -c selects from these fields in any format.
    """

    epilog = """\
gpustack scan; gpustack scan gpu-[01:04] --sudo; gpustack scan --root /mnt/image;
gpustack scan gpu01 --save gpu01.json; gpustack scan --snapshot gpu01.json"""

    nothing = ""  # a host without GPUs is named
    _scanned: tuple[HostRows, ...] = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_source_options(parser, THIS_MACHINE)
        add_each(parser)
        add_exit_code(parser)
        option(parser, "--save FILE", "save the facts of the hosts as a snapshot, readable by its owner only")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        gather(self, parsed_args)
        if parsed_args.save and self._gathered.raw:
            save_snapshot(parsed_args.save, self._gathered.raw)
        self._scanned = by_host(self._gathered.hosts)
        near = {of_host.host.hostname: decided(of_host.host, _nics, _nics) for of_host in self._scanned}

        def nics(row: Row) -> list[dict[str, Any]]:
            return near[row.host.hostname].get(row.gpu.main.address, [])

        column = Column("nics", nics, "", lambda row: _names(nics(row)))
        return table(parsed_args, (*COLUMNS, column), [row for of_host in self._scanned for row in of_host.rows])

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Print the totals; report the findings, and the hosts that could not be read."""
        if parsed_args.formatter == "table":
            states = Counter(row.readiness.state.value for of_host in self._scanned for row in of_host.rows)
            self.show_total({"host": len(self._scanned), "GPU": states.total()}, states)
        report_without_gpus(self, (of_host.host for of_host in self._scanned if not of_host.rows))
        readiness = [row.readiness for of_host in self._scanned for row in of_host.rows]
        reasons = [f for of_host in self._scanned for f in of_host.reasons]
        reasons += [f for of_gpu in readiness for f in of_gpu.reasons]
        notes = [note for of_gpu in readiness for note in of_gpu.notes]
        are_quiet = self.verbosity < 2
        self.note(note for note in notes if are_quiet and note.severity is Severity.INFO)
        self.report_findings(
            [*reasons, *(note for note in notes if not are_quiet or note.severity is not Severity.INFO)]
        )
        discrete = (r for of_host in self._scanned for r in of_host.rows if not is_integrated(r.host, r.gpu.main))
        if self._usual_outcome(parsed_args) != "blocked" and not any(discrete):
            self.outcome = "nothing"  # for a spec: `spec init` would refuse


def _nics(host: Host) -> dict[str, list[dict[str, Any]]]:
    """The NICs on the NUMA node of each GPU, the nearest first, by the address of the GPU."""
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


def _names(nics: Sequence[dict[str, Any]]) -> str:
    """The NICs by their RDMA device, interface or address: ``mlx5_0 PIX, ens2f0 NODE``."""
    names = (((*nic["infiniband"], *nic["interfaces"], nic["address"])[0], nic["distance"]) for nic in nics)
    return ", ".join(map(" ".join, names))
