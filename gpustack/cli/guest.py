"""``gpustack guest``: the drivers that guests of GPU flavors need, documents for Kubernetes tools, checks of guests.

A guest is checked from inside or by its console log; vendor data make Nova's guests check themselves.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpustack.base.columns import Column
from gpustack.base.errors import PlanError, UsageError
from gpustack.base.files import write_atomic
from gpustack.base.findings import Finding, errors
from gpustack.base.text import counted, printable
from gpustack.cli.common import Command, Lister, add_exit_code, add_format, add_ssh_options, ssh_options
from gpustack.cli.options import Once, add_snapshot, option, positive, read_log, snapshot_hosts
from gpustack.cli.output import Table, table
from gpustack.hosts.health import kernel_log
from gpustack.offer.guest import check, drivers, requirements, source, vendordata
from gpustack.offer.guest.check import Promise, findings, promise, rows
from gpustack.offer.guest.drivers import OPERATOR, Installation, installations, operator_pin, recommended
from gpustack.offer.guest.inside import console
from gpustack.offer.guest.kubernetes.documents import Rendering
from gpustack.offer.guest.kubernetes.render import FORMS, render
from gpustack.offer.guest.requirements import GuestRequirement
from gpustack.spec.flavors import named
from gpustack.spec.load import load_spec
from gpustack.spec.model import Spec
from gpustack.spec.requests import by_model
from gpustack.spec.vgpu_use import drivers_of


class GuestRequirementsCommand(Command):
    """Show the drivers that guests of GPU flavors need: branches, kernel modules, packages.

    For each flavor of the spec, prints the drivers that serve all of its models, the packages of Debian, Ubuntu and
    RHEL, and the values of NVIDIA GPU Operator. If no single driver serves the models, the reason is reported. Reads
    the spec and the catalogue of cards only.
    """

    epilog = """\
gpustack guest requirements gpustack.yaml;
gpustack guest requirements gpustack.yaml --flavor g1.a100.1 -f json"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
        option(parser, "--flavor NAME…", "only this flavor, by its name in the spec or in the cloud")
        add_snapshot(parser, ", whose NVIDIA driver decides for vGPUs")
        add_format(parser)
        add_exit_code(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        spec = load_spec(parsed_args.spec)
        hosts = drivers_of(snapshot_hosts(parsed_args, self.report))
        flavors = dict.fromkeys(chosen(spec, parsed_args.flavor).values())
        needed = [requirements.requirement_of_flavor(spec, name, spec.flavors[name]) for name in flavors]
        found = {
            needs.flavor: (*requirements.findings_of(needs, hosts), *drivers.findings_of(needs)) for needs in needed
        }
        self._findings = tuple(dict.fromkeys(entry for entries in found.values() for entry in entries))
        if parsed_args.format != "text":
            self.show_data([_described(needs, found[needs.flavor]) for needs in needed], parsed_args.format)
            return
        for needs in needed:
            self.show("\n".join(printable(line) for line in _lines(needs)))


def chosen(spec: Spec, names: list[str]) -> dict[str, str]:
    """The requested flavors' names in the cloud, with their names in the spec; all without a request.

    :raises UsageError: for a flavor that the spec lacks.
    """
    known = {named(entry, count): entry for entry in spec.flavors for count, _ in by_model(spec.flavors[entry])}
    if not known:
        raise UsageError("the spec has no flavors", remedy="add a section flavors to the spec")
    for name in names:
        if name not in (*known, *spec.flavors):
            remedy = f"flavors: {', '.join({**known, **spec.flavors})}"
            raise UsageError(f"the spec has no flavor {name}", remedy=remedy)
    return {name: entry for name, entry in known.items() if not names or name in names or entry in names}


def _described(needs: GuestRequirement, findings: Sequence[Finding]) -> dict[str, Any]:
    driver = needs.nvidia
    best = recommended(driver) if driver else None
    pin = operator_pin(driver) if driver and not needs.windows else None
    return {
        "flavor": needs.flavor,
        "windows": needs.windows,
        "models": [
            {
                "model": need.model,
                "card": need.card.full_name if need.card else None,
                "label": need.label,
                "unknown": list(need.unknown),
                "facts": {
                    name: {"value": getattr(need.requirement, name), "source": source}
                    for name, source in need.requirement.sources.items()
                },
            }
            for need in needs.models
        ],
        "conflict": needs.conflict,
        "nvidia": driver
        and {
            "first": driver.first,
            "last": driver.last,
            "modules": sorted(driver.modules),
            "recommended": best and {"branch": best[0], "modules": best[1]},
        },
        "linux": dict(needs.linux),
        "compute": list(needs.compute),
        "mig": needs.mig,
        "systems": list(map(asdict, installations(needs))),
        "operator": pin
        and {"driver.version": pin.driver, "driver.kernelModuleType": pin.module_type, "breaks": pin.breaks},
        "findings": [entry.to_dict() for entry in findings],
    }


def _lines(needs: GuestRequirement) -> Iterator[str]:
    yield f"{needs.flavor} (models: {', '.join(need.model for need in needs.models) or 'none'})"
    if needs.conflict:
        yield f"  NVIDIA driver: no single driver: {needs.conflict}"
    if needs.nvidia:
        yield f"  NVIDIA driver: {needs.nvidia}"
        if best := recommended(needs.nvidia):
            first = needs.nvidia.first_of(best[0])
            yield f"  recommended: R{best[0]}, {best[1]} kernel modules" + (f", {first} or later" if first else "")
    if needs.vgpus:
        yield f"  vGPU ({', '.join(needs.vgpus)}): NVIDIA's licensed guest driver of the host's vGPU release"
        yield "  licence: a client configuration token in /etc/nvidia/ClientConfigToken"
    if unknown := [f"{need.model} ({' and '.join(need.unknown)})" for need in needs.models if need.unknown]:
        yield f"  unknown: {', '.join(unknown)}"
    for module, kernel in needs.linux.items():
        yield f"  Linux driver: {module}" + (f", Linux {kernel} or later" if kernel else "")
    if needs.compute:
        lacking = [need.model for need in needs.models if not (need.requirement.compute or need.requirement.gfx)]
        yield f"  compute targets: {', '.join([*needs.compute, *(f'unknown for {model}' for model in lacking)])}"
    if needs.mig:
        yield f"  MIG: up to {needs.mig} instances on each GPU"
    for each in installations(needs):
        yield f"  {each.system}: {_installed(each)}"
    pin = operator_pin(needs.nvidia) if needs.nvidia and not needs.windows else None
    if pin:
        yield f"  {OPERATOR}: driver.version={pin.driver} driver.kernelModuleType={pin.module_type}"


def _installed(each: Installation) -> str:
    if each.missing or each.fault:
        return f"none: {each.missing or each.fault}"
    return f"packages for {' and '.join(each.unknown)} unknown" if each.unknown else "; ".join(each.commands)


class GuestCheckCommand(Lister):
    """Check the GPUs of a guest: number, driver, address space, and the reasons in the kernel's messages.

    Run it in the guest, read the guest over SSH, or read the output of `openstack console log show`. With SPEC and
    --flavor, or with --gpus, the GPUs are compared with those that the instance must have. Nothing is changed. The
    column Findings is ok, unknown, or has the codes of the findings, which are printed on stderr.
    """

    epilog = """\
gpustack guest check --ssh debian@203.0.113.7 --sudo --flavor g1.a100.2 gpustack.yaml;
openstack console log show gpu-vm | gpustack guest check --console - --gpus 2"""

    _has_none = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        about = "the spec of --flavor, usually gpustack.yaml"
        parser.add_argument("spec", type=Path, nargs="?", metavar="SPEC", help=about)
        promise = parser.add_mutually_exclusive_group()
        option(promise, "--flavor NAME", "the flavor of the instance, by its name in the cloud")
        option(promise, "--gpus N", "the number of GPUs that the guest must have", type=positive)
        source = parser.add_mutually_exclusive_group()
        option(source, "--console FILE", "read this console log (-: standard input)", type=str)
        option(source, "--root DIR", "read this directory as the / of a guest", action=Once)
        option(source, "--ssh HOST", "read this guest over SSH, as [user@]name (default: this machine)")
        ssh = parser.add_argument_group("SSH", "~/.ssh/config and known hosts apply; host keys are always checked")
        add_ssh_options(ssh, timeout=30.0)
        add_exit_code(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        if (parsed_args.flavor is None) != (parsed_args.spec is None):
            raise UsageError("SPEC and --flavor need each other", remedy="give both, or neither")
        promised = Promise(count=parsed_args.gpus) if parsed_args.gpus else None
        if parsed_args.flavor is not None:
            promised = promise(load_spec(parsed_args.spec), parsed_args.flavor)
        where, facts = self._facts(parsed_args)
        self._findings = tuple(findings(facts, promised, where))
        self._has_none = facts["gpus"] == [] and promised is None
        return table(parsed_args, _columns(self._findings), rows(facts, self._findings, where))

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Report the findings; without GPUs and without a promise there is nothing to compare."""
        if self._has_none:
            self.report("the guest has no GPU; to compare it with its flavor, give SPEC and --flavor, or --gpus")
        super().after(parsed_args)

    def _facts(self, parsed_args: argparse.Namespace) -> tuple[str, dict[str, Any]]:
        """The guest's name and facts."""
        if parsed_args.sudo and (parsed_args.root or parsed_args.console is not None):
            raise UsageError("--sudo applies only to guests and this machine", remedy="omit --sudo")
        if parsed_args.console is not None:
            log = read_log(parsed_args.console, kernel_log.table().mentions)
            return "guest", console.facts(log, check.consoles(), kernel_log.table())
        if parsed_args.ssh is not None:
            return parsed_args.ssh.rpartition("@")[2], source.over_ssh(parsed_args.ssh, ssh_options(parsed_args))
        if parsed_args.sudo:
            return "guest", source.with_sudo(ssh_options(parsed_args))
        return "guest", source.local(parsed_args.root)


def _columns(found: Sequence[Finding]) -> tuple[Column[dict[str, Any]], ...]:
    """The columns of a guest's GPUs."""
    shown = {None: "unknown", "": "none"}

    def codes(row: dict[str, Any]) -> str:
        good = "ok" if row["driver"] and not found else "-" if row["driver"] else "unknown"
        return ", ".join(dict.fromkeys(row["findings"])) or good

    return (
        Column("guest", lambda row: row["guest"], "Guest"),
        Column("address", lambda row: row["address"], "Address"),
        Column("card", lambda row: row["card"], "Card"),
        Column("driver", lambda row: row["driver"], "Driver", lambda row: shown.get(row["driver"], row["driver"])),
        Column("findings", lambda row: row["findings"], "Findings", codes),
    )


class GuestRenderCommand(Command):
    """Render the nodes of a Kubernetes cluster for the flavors of a spec: GPUs, labels, taints, drivers.

    Prints YAML and deploys nothing. Flavors that can't be rendered are left out and reported. With --as capo, the
    output is a template of `clusterctl generate yaml`.
    """

    epilog = """\
gpustack guest render gpustack.yaml --as capo --flavor g1.k4200.1 | clusterctl generate yaml | kubectl apply -f -;
gpustack guest render gpustack.yaml --as nodefeaturerule | kubectl apply -f -"""

    _rendering: Rendering

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
        add_exit_code(parser)
        parser.add_argument(
            "--as",
            dest="form",
            choices=FORMS,
            required=True,
            help="capo: node groups with the annotations of the autoscaler; capi-helm: values of the chart"
            " openstack-cluster; nodefeaturerule: labels by PCI id;"
            " operator-values: the driver for NVIDIA GPU Operator; kubeadm: scheduler, labels and taints",
        )
        option(parser, "--flavor NAME…", "only this flavor, by its name in the spec or in the cloud (default: all)")
        add_snapshot(parser, ", for sizes `auto`")
        option(parser, "--max-nodes N", "the largest number of nodes of a group", type=positive, default=1)
        add_format(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print the documents."""
        hosts = snapshot_hosts(parsed_args, self.report)
        spec = load_spec(parsed_args.spec, hosts)
        flavors = list(chosen(spec, parsed_args.flavor))
        self._rendering = render(spec, parsed_args.form, flavors=flavors, hosts=hosts, max_nodes=parsed_args.max_nodes)
        if parsed_args.format == "text":
            print(self._rendering.text, end="", file=self.app.stdout)
        else:
            self.show_data(self._rendering.to_dict(), parsed_args.format)

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Report the findings; an error among them means that the output is incomplete."""
        self.report_findings(self._rendering.findings)
        if omitted := {entry.place for entry in errors(self._rendering.findings)}:
            raise PlanError(f"incomplete for {counted(len(omitted), 'flavor')}", remedy="see the findings above")


class GuestVendordataCommand(Command):
    """Render Nova's vendor data: a script that reports the GPUs of every guest on its console.

    The file is for StaticJSON, Nova's default provider: `vendordata_jsonfile_path` in the group `api`. cloud-init runs
    the script at the first boot of each instance. Without a GPU it does nothing, unless the flavor promises one. It
    changes nothing in the guest. Flavors with `access` are omitted, since every project can read the file. `gpustack
    guest check --console` reads the report. Other vendor data in FILE of --merge, such as NTP servers, is kept.
    """

    epilog = """\
gpustack guest vendordata gpustack.yaml --out vendordata.json;
gpustack guest vendordata gpustack.yaml --merge /etc/nova/vendordata.json --out vendordata.json"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
        option(parser, "--out FILE", "write to FILE (default: standard output)")
        option(parser, "--merge FILE", "keep the vendor data of this file")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        spec = load_spec(parsed_args.spec)
        promised = check.promises(spec, public=True)
        if omitted := len(check.promises(spec)) - len(promised):
            self.report(f"{counted(omitted, 'flavor')} of single projects omitted: every instance can read vendor data")
        text = vendordata.render(promised, vendordata.read(parsed_args.merge) if parsed_args.merge else None)
        if parsed_args.out is None:
            print(text, end="", file=self.app.stdout)
            return
        write_atomic(parsed_args.out, text, mode=0o644, exact=True)
        self.report(f"{parsed_args.out} written: {len(text)} bytes")
