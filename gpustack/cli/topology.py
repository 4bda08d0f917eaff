"""``gpustack topology``: the PCI tree of hosts, from NUMA nodes to GPUs and NICs."""

import argparse

from gpustack.base.findings import Finding
from gpustack.base.host_groups import host_groups, patterns_of
from gpustack.cli.common import THIS_MACHINE, Command, add_each, add_exit_code, add_format, add_source_options, gather
from gpustack.cli.options import option
from gpustack.configure.numa_nodes import spanning_flavors
from gpustack.hosts.topology import diagram
from gpustack.hosts.topology.build import topology
from gpustack.hosts.topology.check import check
from gpustack.hosts.topology.diagram import document
from gpustack.hosts.topology.model import Kind, Topology
from gpustack.hosts.topology.show import ASCII, UNICODE, text
from gpustack.spec.load import load_spec
from gpustack.spec.model import patterns_for, with_groups


class TopologyCommand(Command):
    """Print the PCI topology of hosts: NUMA nodes, root ports, switches, GPUs and NICs, with links and distances.

    Distances have the names of nvidia-smi topo -m: PIX, PXB, PHB, NODE, SYS. NVLink is not visible on the PCI bus. The
    formats mermaid and dot print the input of these programs.
    """

    epilog = """\
gpustack topology; gpustack topology gpu01 --sudo; gpustack topology --snapshot fleet.json gpu01 --spec gpustack.yaml;
gpustack topology gpu01 -f dot | dot -Tsvg > gpu01.svg"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_source_options(parser, THIS_MACHINE)
        add_each(parser)
        add_exit_code(parser)
        add_format(parser, others=("mermaid", "dot"))
        option(parser, "--all", "print all PCI functions, as lspci -t does")
        option(parser, "--spec SPEC", "report flavors whose GPUs can't come from one NUMA node")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        spec = load_spec(parsed_args.spec) if parsed_args.spec else None
        gather(self, parsed_args)
        spec = spec and with_groups(spec, self._gathered.groups)
        shown = []
        for host in self._gathered.hosts:
            if spec is not None and not patterns_for(spec, host.hostname):
                self.report(f"{host.hostname}: not in {parsed_args.spec}; its flavors are not compared")
            complete = topology(host)
            findings = check(complete)
            if spec is not None:
                findings += tuple(spanning_flavors(host, spec))
            self._findings = (*self._findings, *findings)
            shown.append((complete if parsed_args.all else complete.pruned(), findings))
        self._print(parsed_args, shown)

    def _print(self, parsed_args: argparse.Namespace, shown: list[tuple[Topology, tuple[Finding, ...]]]) -> None:
        topologies, form = [topology for topology, _ in shown], parsed_args.format
        lines = UNICODE if _can_print(UNICODE.last + UNICODE.arrow, self.app.stdout.encoding) else ASCII
        texts = [(of_host.host.hostname, text(of_host, lines)) for of_host in topologies]
        if form in ("json", "yaml"):
            groups = patterns_of(host_groups(texts))
            documents = [document(topology, findings) for topology, findings in shown]
            self.show_data([{**one, "group": groups[str(one["host"])]} for one in documents], form)
        elif not topologies:
            return
        elif form == "text":
            self.show_hosts(parsed_args, texts)
            kinds = {
                noun: sum(len(t.devices(kind)) for t in topologies)
                for noun, kind in (("GPU", Kind.GPU), ("NIC", Kind.NIC))
            }
            self.show_total({"host": len(topologies), **kinds}, {})
        else:
            print((diagram.mermaid if form == "mermaid" else diagram.dot)(topologies), file=self.app.stdout)


def _can_print(characters: str, encoding: str | None) -> bool:
    try:
        characters.encode(encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
