"""``gpustack flavor create`` and ``set``: GPU flavors by hand."""

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

from gpustack.base.errors import FlavorError, GpustackError, UsageError
from gpustack.cli.flavor import FlavorChangeCommand, InCloud, read_spec
from gpustack.cli.options import explained, option, positive, release_of
from gpustack.cloud.flavors import Sizes
from gpustack.nova_options import releases
from gpustack.offer.flavor import manual
from gpustack.offer.flavor.apply import answers
from gpustack.offer.flavor.compare import Questions
from gpustack.offer.flavor.desired import extra_specs
from gpustack.offer.flavor.flavors import PresentFlavor, WantedFlavor, gpus_text
from gpustack.offer.flavor.manual import Changes, GpuOption, change, creation, find_flavor, gpu_option, requested
from gpustack.spec.extra_specs import ALIAS, alias_value
from gpustack.spec.fields import NumaPolicy
from gpustack.spec.flavors import PAGE_PATTERN, amount
from gpustack.spec.model import Spec

_mib, _gib = explained(partial(amount, unit="MiB")), explained(partial(amount, unit="GiB"))


class FlavorCreateCommand(FlavorChangeCommand):
    """Create a flavor by hand.

    The alias is that of the model in the spec; without a spec, it is the model's name. An incomplete flavor is deleted
    again. `flavor apply --prune` does not delete flavors that are created by hand.
    """

    epilog = """\
gpustack flavor create g1.k4200.2 --model k4200 --count 2 --vcpus 16 --ram 64GiB --disk 80GiB;
gpustack flavor create mixed --model k4200 --model a100:2 --vcpus 16 --ram 64GiB --disk 80GiB;
gpustack flavor create lab --alias K4200 --vcpus 8 --ram 32GiB --disk 40GiB --project research --numa-policy required"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("name", metavar="NAME", help="the flavor's name")
        _add_gpus(parser)
        option(parser, "--vcpus N", "vCPUs", type=positive, required=True)
        option(parser, "--ram SIZE", "memory: 64GiB, or a number of MiB", type=_mib, required=True)
        option(parser, "--disk SIZE", "root disk: 80GiB, or a number of GiB", type=_gib, required=True)
        option(parser, "--ephemeral SIZE", "ephemeral disk, in GiB", type=_gib, default=0)
        option(parser, "--swap SIZE", "swap, in MiB", type=_mib, default=0)
        option(parser, "--id ID", "id of the flavor (default: auto, a new UUID)")
        option(parser, "--private", "only the projects of --project can use the flavor")
        _add_properties(parser)
        self.add_change_options(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        if not parsed_args.gpus:
            raise UsageError("the flavor requests no GPU", remedy="name a GPU with --model or --alias")
        spec = _spec_at_hand(parsed_args)
        gpus = requested(_aliases(self, spec, parsed_args.gpus), parsed_args.count)
        wanted = WantedFlavor(
            name=parsed_args.name,
            id=None if parsed_args.id == "auto" else parsed_args.id,
            sizes=Sizes(**{key: getattr(parsed_args, key) for key in ("vcpus", "ram", "disk", "ephemeral", "swap")}),
            gpus=gpus,
            extra_specs=extra_specs(gpus, **_properties(parsed_args, spec)),
            description=parsed_args.description or "",
            access=tuple(dict.fromkeys(parsed_args.project)) if parsed_args.private or parsed_args.project else None,
            origin="hand",
        )
        cloud = self.cloud(parsed_args)
        projects = answers(cloud, Questions(projects=frozenset(parsed_args.project))).projects
        self.change(parsed_args, [creation(wanted, cloud.flavors(), projects)])


class FlavorSetCommand(FlavorChangeCommand):
    """Change a flavor: GPUs, extra specs, description, projects."""

    epilog = """\
gpustack flavor set g1.k4200.2 --numa-policy required --numa-nodes 1;
gpustack flavor set g1.k4200.2 --project research --remove-project teaching"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("flavor", metavar="NAME", help="a flavor's name or id")
        _add_gpus(parser)
        _add_properties(parser)
        option(parser, "--remove-project NAME…", "remove the access of a project, by id or name; can be repeated")
        option(parser, "--unset-property KEY…", "remove an extra spec; can be repeated")
        option(parser, "--adopt", "change a flavor that gpustack did not create")
        self.add_change_options(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        spec = _spec_at_hand(parsed_args)
        cloud = self.cloud(parsed_args)
        flavor = find_flavor(cloud.flavors(), parsed_args.flavor)
        if not flavor.ours and not parsed_args.adopt:
            raise FlavorError(f"{flavor.name}: not created by gpustack", remedy="--adopt changes it nevertheless")
        specs = self._extra_specs(parsed_args, spec, flavor)
        projects = frozenset((*parsed_args.project, *parsed_args.remove_project))
        questions = Questions(
            projects=projects, access=frozenset({flavor.id} if projects and not flavor.public else ())
        )
        learned = answers(cloud, questions)
        changes = Changes(
            set_specs=specs,
            unset_specs=frozenset(parsed_args.unset_property),
            description=parsed_args.description,
            grant=frozenset(learned.projects[project] for project in parsed_args.project),
            revoke=frozenset(learned.projects[project] for project in parsed_args.remove_project),
        )
        operation = change(flavor, changes, learned.access.get(flavor.id))
        self.change(parsed_args, [operation] if operation is not None else [])

    def _extra_specs(self, parsed_args: argparse.Namespace, spec: Spec | None, flavor: PresentFlavor) -> dict[str, str]:
        """The extra specs to set.

        :raises UsageError: if the flavor would request no GPU, or the number of GPUs is ambiguous.
        """
        gpus = self._gpus(parsed_args, spec, flavor)
        specs = extra_specs(gpus, **_properties(parsed_args, spec))
        if not gpus:
            raise UsageError(f"{flavor.name} asks for no GPU", remedy="name --model or --alias, and --count")
        if specs.get(ALIAS) == alias_value(flavor.gpus):
            specs[ALIAS] = flavor.extra_specs[ALIAS]  # an equivalent request is not a change
        return specs

    def _gpus(self, parsed_args: argparse.Namespace, spec: Spec | None, flavor: PresentFlavor) -> Mapping[str, int]:
        """The number of GPUs by alias: as requested, or that of the flavor."""
        if parsed_args.gpus:
            one_kind = len(parsed_args.gpus) == 1 and parsed_args.gpus[0].count is None
            count = parsed_args.count or (sum(flavor.gpus.values()) or 1 if one_kind else None)
            return requested(_aliases(self, spec, parsed_args.gpus), count)
        if not parsed_args.count:
            return flavor.gpus
        if len(flavor.gpus) != 1:
            raise UsageError(
                f"--count is ambiguous: {flavor.name} requests {gpus_text(flavor.gpus) or 'no GPU'}",
                remedy="name each kind of GPU with --model NAME:N or --alias NAME:N",
            )
        return dict.fromkeys(flavor.gpus, parsed_args.count)


# --- arguments -----------------------------------------------------------------------------------------------


def _add_gpus(parser: argparse.ArgumentParser) -> None:
    for name, model, device in (
        ("--model", True, "a model of the spec"),
        ("--alias", False, "an alias of Nova's configuration"),
    ):
        text = f"request N GPUs of {device} (default: 1); can be repeated"
        reader = explained(partial(gpu_option, model=model))
        option(parser, f"{name} NAME[:N]…", text, dest="gpus", type=reader)
    option(parser, "--count N", "request N GPUs, if there is one kind of GPU", type=positive)
    option(parser, "--spec SPEC", "the spec (default: gpustack.yaml, if it exists)")


def _add_properties(parser: argparse.ArgumentParser) -> None:
    option(parser, "--description TEXT", "set the description of the flavor")
    option(parser, "--project NAME…", "give a project access, by id or name; can be repeated")
    option(parser, "--numa-policy", "affinity of vCPUs to the NUMA nodes of the GPUs", choices=get_args(NumaPolicy))
    option(parser, "--numa-nodes N", "NUMA nodes of the instance", type=positive)
    parser.add_argument("--cpu-policy", choices=("shared", "dedicated"), help="pin vCPUs (dedicated), or not (shared)")
    option(parser, "--mem-page-size SIZE", "size of memory pages: small, large, any, or a size such as 1GB")
    width = "give instances the host's address width, for large BARs"
    option(parser, "--maxphysaddr", width, choices=("passthrough",))
    option(parser, "--hide-hypervisor", "hide KVM from the guest's driver (error 43)")
    option(parser, "--property KEY=VALUE…", "set another extra spec; can be repeated")
    option(parser, "--release NAME", "use this release of Nova (default: that of the spec)")


def _properties(parsed_args: argparse.Namespace, spec: Spec | None) -> dict[str, Any]:
    others = {}
    for text in parsed_args.property:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"--property {text!r} has no '='", remedy="write KEY=VALUE")
        others[key] = value
    manual.refuse_own(others)
    if parsed_args.mem_page_size and not re.fullmatch(PAGE_PATTERN, parsed_args.mem_page_size):
        raise UsageError(
            f"{parsed_args.mem_page_size!r} is no size of pages", remedy="small, large, any, or a size like 1GB"
        )
    release = release_of(parsed_args.release, spec if spec and spec.nova else None)
    if parsed_args.maxphysaddr and "hw:maxphysaddr_mode" not in releases.extra_specs(release):
        raise UsageError(f"Nova {release} does not know hw:maxphysaddr_mode", remedy="it came with 2024.1")
    return {
        "release": release,
        "policy": parsed_args.numa_policy,
        "nodes": parsed_args.numa_nodes,
        "cpu_policy": parsed_args.cpu_policy,
        "mem_page_size": parsed_args.mem_page_size,
        "maxphysaddr": parsed_args.maxphysaddr,
        "hide_hypervisor": parsed_args.hide_hypervisor,
        "others": others,
    }


def _spec_at_hand(parsed_args: argparse.Namespace) -> Spec | None:
    """The spec of ``--spec``, or gpustack.yaml; an unreadable gpustack.yaml is an error only if a model is needed."""
    default = Path("gpustack.yaml")
    if parsed_args.spec is not None or not default.exists():
        return read_spec(parsed_args.spec)
    try:
        return read_spec(default)
    except GpustackError:
        if any(option.model for option in parsed_args.gpus):
            raise
        return None


def _aliases(command: InCloud, spec: Spec | None, options: Sequence[GpuOption]) -> list[GpuOption]:
    """The options with models replaced by their aliases; warns about aliases that the spec lacks."""
    aliases = []
    for asked in options:
        alias = asked.name
        if asked.model and spec is not None:
            if asked.name not in spec.models:
                raise UsageError(
                    f"the spec has no model {asked.name!r}", remedy=f"name one of: {', '.join(spec.models)}"
                )
            alias = spec.alias_of(asked.name)
            if spec.models[asked.name].vgpu:
                text = "define flavors of mediated devices in the spec"
                command.report(f"warning: the alias {alias} requests virtual functions; {text}")
        elif asked.model:
            command.report(
                f"no spec: the model name {alias} is used as the alias; use --spec or --alias to change that"
            )
        elif spec is not None and alias not in (
            known := {alias for model in spec.models for alias in spec.aliases_of(model)}
        ):
            command.report(
                f"warning: no model of the spec has the alias {alias} (aliases: {', '.join(sorted(known))});"
                " instances of the flavor fail to boot unless Nova's [pci] alias defines it"
            )
        aliases.append(replace(asked, name=alias, model=False))
    return aliases
