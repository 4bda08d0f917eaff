"""``gpustack flavor …``, and ``openstack gpu flavor …``: list, show and delete; by hand; by spec.

The same commands serve both programs. In ``openstack`` they use its connection, and ``openstack`` itself parses options
such as ``--os-cloud``.
"""

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

from gpustack.base.columns import Column, in_words
from gpustack.base.errors import CloudError, FlavorError, GpustackError, UsageError
from gpustack.base.operations import Operation
from gpustack.cli.change import ChangeCommand, show_operations
from gpustack.cli.cloud import OpenStackCommand
from gpustack.cli.common import Lister, ShowOne
from gpustack.cli.options import add_snapshot, explained, option, positive, release_of
from gpustack.cli.output import Table, table
from gpustack.cli.sync import ApplyCommand, PlanCommand
from gpustack.cloud.flavors import FlavorCloud, Sizes, readable
from gpustack.cloud.identity import project_ids
from gpustack.cloud.session import FORBIDDEN, tolerating
from gpustack.fleet.cards import requested_gpus
from gpustack.nova_options import releases
from gpustack.offer.cloud_plan.plan import CloudPlan
from gpustack.offer.flavor import manual
from gpustack.offer.flavor.apply import answers, deletion
from gpustack.offer.flavor.changes import changes, with_projects
from gpustack.offer.flavor.compare import Questions
from gpustack.offer.flavor.desired import extra_specs
from gpustack.offer.flavor.flavors import PresentFlavor, WantedFlavor, gpus_text, gpus_without_spec, present_flavors
from gpustack.offer.flavor.manual import Changes, GpuOption, change, creation, find_flavor, gpu_option, requested
from gpustack.offer.flavor.operations import FlavorOperation
from gpustack.spec.extra_specs import AFFINITY, ALIAS, alias_value
from gpustack.spec.fields import NumaPolicy
from gpustack.spec.flavors import PAGE_PATTERN, Flavor, Numa, amount
from gpustack.spec.load import load_spec
from gpustack.spec.model import Spec


class InCloud(OpenStackCommand):
    """Base class of the flavor commands: the cloud's flavors."""

    def cloud(self, parsed_args: argparse.Namespace) -> FlavorCloud[PresentFlavor]:
        """A client of the cloud, with its connection."""
        return present_flavors(self.connection(parsed_args))


class FlavorListCommand(InCloud, Lister):
    """List GPU flavors.

    With --spec, the list also has models, and the NUMA policies of their aliases. A NUMA policy of the flavor itself
    has precedence.
    """

    epilog = """\
gpustack flavor list --spec gpustack.yaml;
gpustack flavor list --long -f json"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        option(parser, "--spec SPEC", "the spec, for the models behind the aliases")
        option(parser, "--all", "also list flavors without GPUs")
        option(parser, "--long", "also list ids, and the projects of private flavors")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """One row for each flavor."""
        spec = load_spec(parsed_args.spec) if parsed_args.spec else None
        cloud = self.cloud(parsed_args)
        flavors = [
            flavor
            for flavor in cloud.flavors()
            if parsed_args.all or flavor.ours or ALIAS in flavor.extra_specs or _gpus(spec, flavor)
        ]
        private = frozenset(flavor.id for flavor in flavors if not flavor.public) if parsed_args.long else frozenset()
        access = answers(cloud, Questions(access=private)).access
        return table(parsed_args, _columns(spec, access, long=parsed_args.long), sorted(flavors, key=lambda f: f.name))


def _columns(
    spec: Spec | None, access: Mapping[str, Iterable[str]], *, long: bool
) -> tuple[Column[PresentFlavor], ...]:
    """The columns of flavors.

    :param access: the projects of private flavors, by the flavor's ID.
    """

    def visible(flavor: PresentFlavor) -> str | list[str]:
        return sorted(access[flavor.id]) if flavor.id in access else "public" if flavor.public else "private"

    shown: tuple[Column[PresentFlavor], ...] = (
        Column("Name", lambda flavor: flavor.name, "Name"),
        Column("Model", lambda flavor: _models(spec, _gpus(spec, flavor)), "Model"),
        Column("GPUs", lambda flavor: sum(_gpus(spec, flavor).values()), "GPUs"),
        Column(
            "Alias",
            lambda flavor: _gpus(spec, flavor),
            "Alias",
            lambda flavor: (
                ", ".join(f"{alias}:{n}" for alias, n in _gpus(spec, flavor).items())
                or flavor.extra_specs.get(ALIAS, "")
            ),
        ),
        Column("VCPUs", lambda flavor: flavor.sizes.vcpus, "VCPUs"),
        Column("RAM", lambda flavor: flavor.sizes.ram, "RAM", lambda flavor: readable(flavor.sizes.ram)),
        Column("Disk", lambda flavor: flavor.sizes.disk, "Disk", lambda flavor: f"{flavor.sizes.disk} GiB"),
        Column("Access", visible, "Access", lambda flavor: in_words(visible(flavor) or "nobody")),
        Column("NUMA policy", lambda flavor: _numa_policy(spec, flavor), "NUMA policy"),
        Column("State", lambda flavor: flavor.state, "State"),
    )
    return (*shown, Column("ID", lambda flavor: flavor.id, "ID")) if long else shown


class FlavorShowCommand(InCloud, ShowOne):
    """Show a flavor with its GPUs, its extra specs, and who may use it."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("flavor", metavar="NAME", help="a flavor's name or id")
        option(parser, "--spec SPEC", "the spec, for the models behind the aliases")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], tuple[Any, ...]]:
        spec = load_spec(parsed_args.spec) if parsed_args.spec else None
        cloud = self.cloud(parsed_args)
        flavor = find_flavor(cloud.flavors(), parsed_args.flavor)
        fields: dict[str, object] = {
            "name": flavor.name,
            "id": flavor.id,
            "state": flavor.state,
            "description": flavor.description,
            "gpus": _gpus(spec, flavor),
            "models": _models(spec, _gpus(spec, flavor)),
            **flavor.sizes.to_dict(),
            "numa_policy": _numa_policy(spec, flavor),
            "access": "public" if flavor.public else "private",
            "instances": None,
            "extra_specs": dict(sorted(flavor.extra_specs.items())),
        }
        with tolerating(FORBIDDEN):  # users of one project may not see the other projects
            fields |= {} if flavor.public else {"access": sorted(cloud.access(flavor.id))}
            fields["instances"] = cloud.users(flavor.id)
        return tuple(fields), tuple(fields.values())


class FlavorChangeCommand(ChangeCommand, InCloud):
    """Base class of the commands that change flavors by hand."""

    incomplete = FlavorError

    def change(self, parsed_args: argparse.Namespace, operations: Sequence[FlavorOperation]) -> None:
        """Show operations, ask for confirmation, and carry them out."""
        show_operations(self, operations, parsed_args.format)
        if not operations:
            self.report("nothing to change")
        elif not parsed_args.check:
            self.carry_out(with_projects(self.cloud(parsed_args), changes(operations)), parsed_args)


class FlavorDeleteCommand(FlavorChangeCommand):
    """Delete flavors that gpustack made and that no instance uses.

    If one can't be deleted, the others are deleted nevertheless.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("flavors", nargs="+", metavar="NAME", help="a flavor's name or id")
        option(parser, "--force", "also delete flavors that are in use, or that gpustack did not create")
        self.add_change_options(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        cloud = self.cloud(parsed_args)
        present = cloud.flavors()
        names = list(dict.fromkeys(parsed_args.flavors))
        failures, operations = 0, []
        for name in names:
            try:
                operations.append(deletion(cloud, find_flavor(present, name), force=parsed_args.force))
            except (CloudError, FlavorError, UsageError) as error:
                if len(names) == 1:
                    raise
                self.report(str(error), error=True)
                failures += 1
        self.change(parsed_args, list({operation.flavor.id: operation for operation in operations}.values()))
        if failures:
            raise FlavorError(f"{failures} of {len(names)} flavors were not deleted")


def _gpus(spec: Spec | None, flavor: PresentFlavor) -> dict[str, int]:
    specs = flavor.extra_specs
    return (requested_gpus(spec, specs) if spec is not None else {}) or gpus_without_spec(specs)


def _models(spec: Spec | None, gpus: Mapping[str, int]) -> list[str]:
    return [] if spec is None else [model for alias in gpus for model in spec.models_of(alias)]


def _numa_policy(spec: Spec | None, flavor: PresentFlavor) -> str | None:
    affinity = flavor.extra_specs.get(AFFINITY)
    if affinity is not None or spec is None:
        return affinity
    return next((policy for model in _models(spec, flavor.gpus) if (policy := spec.models[model].numa_policy)), None)


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
            extra_specs=_properties(parsed_args, spec, gpus),
            description=parsed_args.description or "",
            access=tuple(dict.fromkeys(parsed_args.project)) if parsed_args.private or parsed_args.project else None,
            origin="hand",
        )
        cloud = self.cloud(parsed_args)
        projects = project_ids(parsed_args.project, cloud.project)
        self.change(parsed_args, [creation(wanted.with_ids(projects), cloud.flavors())])


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
        option(parser, "--remove-project NAME…", "remove the access of a project, by id or name")
        option(parser, "--unset-property KEY…", "remove an extra spec")
        option(parser, "--adopt", "change a flavor that gpustack did not create")
        self.add_change_options(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        spec = _spec_at_hand(parsed_args)
        cloud = self.cloud(parsed_args)
        flavor = find_flavor(cloud.flavors(), parsed_args.flavor)
        if not flavor.ours and not parsed_args.adopt:
            raise FlavorError(f"{flavor.name}: not created by gpustack", remedy="--adopt changes it nevertheless")
        specs = self._extra_specs(parsed_args, spec, flavor)
        ids = project_ids((*parsed_args.project, *parsed_args.remove_project), cloud.project)
        changes = Changes(
            set_specs=specs,
            unset_specs=frozenset(parsed_args.unset_property),
            description=parsed_args.description,
            grant=frozenset(ids[project] for project in parsed_args.project),
            revoke=frozenset(ids[project] for project in parsed_args.remove_project),
        )
        operation = change(flavor, changes, cloud.access(flavor.id) if ids and not flavor.public else None)
        self.change(parsed_args, [operation] if operation is not None else [])

    def _extra_specs(self, parsed_args: argparse.Namespace, spec: Spec | None, flavor: PresentFlavor) -> dict[str, str]:
        """The extra specs to set.

        :raises UsageError: if the flavor would request no GPU, or the number of GPUs is ambiguous.
        """
        gpus = self._gpus(parsed_args, spec, flavor)
        specs = _properties(parsed_args, spec, gpus)
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
            what = f"--count is ambiguous: {flavor.name} requests {gpus_text(flavor.gpus) or 'no GPU'}"
            raise UsageError(what, remedy="name each kind of GPU with --model NAME:N or --alias NAME:N")
        return dict.fromkeys(flavor.gpus, parsed_args.count)


# --- arguments -----------------------------------------------------------------------------------------------


def _add_gpus(parser: argparse.ArgumentParser) -> None:
    for name, model, device in (
        ("--model", True, "a model of the spec"),
        ("--alias", False, "an alias of Nova's configuration"),
    ):
        reader = explained(partial(gpu_option, model=model))
        option(parser, f"{name} NAME[:N]…", f"request N GPUs of {device} (default: 1)", dest="gpus", type=reader)
    option(parser, "--count N", "request N GPUs, if there is one kind of GPU", type=positive)
    option(parser, "--spec SPEC", "the spec (default: gpustack.yaml, if it exists)")


def _add_properties(parser: argparse.ArgumentParser) -> None:
    option(parser, "--description TEXT", "set the description of the flavor")
    option(parser, "--project NAME…", "give a project access, by id or name")
    option(parser, "--numa-policy", "affinity of vCPUs to the NUMA nodes of the GPUs", choices=get_args(NumaPolicy))
    option(parser, "--numa-nodes N", "NUMA nodes of the instance", type=positive)
    parser.add_argument("--cpu-policy", choices=("shared", "dedicated"), help="pin vCPUs (dedicated), or not (shared)")
    option(parser, "--mem-page-size SIZE", "size of memory pages: small, large, any, or a size such as 1GB")
    width = "give instances the host's address width, for large BARs"
    option(parser, "--maxphysaddr", width, choices=("passthrough",))
    option(parser, "--hide-hypervisor", "hide KVM from the guest's driver (error 43)")
    option(parser, "--property KEY=VALUE…", "set another extra spec")
    option(parser, "--release NAME", "use this release of Nova (default: that of the spec)")


def _properties(parsed_args: argparse.Namespace, spec: Spec | None, gpus: Mapping[str, int]) -> dict[str, str]:
    """The extra specs of the options."""
    others = {}
    for text in parsed_args.property:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"--property {text!r} has no '='", remedy="write KEY=VALUE")
        others[key] = value
    manual.refuse_own(others)
    if parsed_args.mem_page_size and not re.fullmatch(PAGE_PATTERN, parsed_args.mem_page_size):
        what = f"{parsed_args.mem_page_size!r} is no size of pages"
        raise UsageError(what, remedy="small, large, any, or a size like 1GB")
    release = release_of(parsed_args.release, spec if spec and spec.nova else None)
    if parsed_args.maxphysaddr and "hw:maxphysaddr_mode" not in releases.extra_specs(release):
        raise UsageError(f"Nova {release} does not know hw:maxphysaddr_mode", remedy="it came with 2024.1")
    flavor = Flavor(
        numa=Numa(policy=parsed_args.numa_policy),
        cpu_policy=parsed_args.cpu_policy,
        mem_page_size=parsed_args.mem_page_size or None,
        maxphysaddr=parsed_args.maxphysaddr,
    )
    nodes, hides = parsed_args.numa_nodes, parsed_args.hide_hypervisor
    return {**extra_specs(flavor, gpus, release, nodes=nodes, hides=hides), **others}


def _spec_at_hand(parsed_args: argparse.Namespace) -> Spec | None:
    """The spec of ``--spec``, or gpustack.yaml; an unreadable gpustack.yaml is an error only if a model is needed."""
    path = parsed_args.spec or Path("gpustack.yaml")
    try:
        return load_spec(path) if parsed_args.spec or path.exists() else None
    except GpustackError:
        if parsed_args.spec or any(option.model for option in parsed_args.gpus):
            raise
        return None


def _aliases(command: InCloud, spec: Spec | None, options: Sequence[GpuOption]) -> list[GpuOption]:
    """The options with models replaced by their aliases; warns about aliases that the spec lacks."""
    aliases = []
    for asked in options:
        alias = asked.name
        if asked.model and spec is not None:
            if asked.name not in spec.models:
                remedy = f"name one of: {', '.join(spec.models)}"
                raise UsageError(f"the spec has no model {asked.name!r}", remedy=remedy)
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


class FlavorPlanCommand(PlanCommand):
    """Show the changes that sync flavors with the spec. Changes nothing."""

    group = "flavors"

    epilog = """\
gpustack flavor plan gpustack.yaml --snapshot hosts.json;
gpustack flavor plan gpustack.yaml --exit-code -f json"""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_snapshot(parser, ", for sizes `auto`, and to report flavors that fit no host")
        option(parser, "--release NAME", "render for this release of Nova (default: that of the spec)")
        option(parser, "--prune", "delete flavors of an earlier spec that no instance uses")
        option(parser, "--replace NAME…", "delete this flavor and create it with its new sizes, if no instance uses it")
        option(parser, "--adopt", "adopt existing flavors of the same names")
        option(parser, "--check-access", "read the projects of every private flavor, one request each")

    def operations(self, plan: CloudPlan) -> Sequence[Operation]:
        return plan.flavors.operations if plan.flavors else ()

    def data(self, plan: CloudPlan) -> dict[str, object]:
        return {"unchanged": list(plan.flavors.unchanged) if plan.flavors else []}


class FlavorApplyCommand(ApplyCommand, FlavorPlanCommand):
    """Sync flavors with the spec, after showing the changes.

    Changes only flavors with gpustack's mark. An incomplete flavor is deleted again. After an interruption, run the
    same command again to complete the changes.
    """

    incomplete = FlavorError
    at_once = 8
    epilog = """\
gpustack flavor apply gpustack.yaml --snapshot hosts.json;
gpustack flavor apply gpustack.yaml --yes --prune"""
