"""``gpustack guest requirements``: the drivers that guests of GPU flavors need."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpustack.base.errors import UsageError
from gpustack.base.findings import Finding
from gpustack.base.text import printable
from gpustack.cli.common import Command, add_exit_code, add_format
from gpustack.cli.options import add_snapshot, option, snapshot_hosts
from gpustack.offer.guest import drivers, requirements
from gpustack.offer.guest.drivers import OPERATOR, Installation, installations, operator_pin, recommended
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
        option(parser, "--flavor NAME…", "only this flavor, by its name in the spec or in the cloud; can be repeated")
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
        best = recommended(needs.nvidia)
        if best:
            first = needs.nvidia.first_of(best[0])
            yield f"  recommended: R{best[0]}, {best[1]} kernel modules" + (f", {first} or later" if first else "")
    if needs.vgpus:
        yield f"  vGPU ({', '.join(needs.vgpus)}): NVIDIA's licensed guest driver of the host's vGPU release"
        yield "  licence: a client configuration token in /etc/nvidia/ClientConfigToken"
    unknown = [f"{need.model} ({' and '.join(need.unknown)})" for need in needs.models if need.unknown]
    if unknown:
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
    if each.unknown:
        return f"packages for {' and '.join(each.unknown)} unknown"
    return "; ".join(each.commands)
