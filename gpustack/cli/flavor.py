"""``gpustack flavor …``, and ``openstack gpu flavor …``: the common base; list, show and delete.

The same commands serve both programs. In ``openstack`` they use its connection, and ``openstack`` itself parses options
such as ``--os-cloud``.
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpustack.base.columns import Column, in_words
from gpustack.base.errors import CloudError, FlavorError
from gpustack.base.text import printable
from gpustack.cli.change import ChangeCommand, show_operations
from gpustack.cli.cloud import OpenStackCommand
from gpustack.cli.common import Lister, ShowOne, is_for_machines
from gpustack.cli.options import option
from gpustack.cli.output import Table, table
from gpustack.cloud.flavors import FlavorCloud, readable
from gpustack.cloud.session import FORBIDDEN, tolerating
from gpustack.fleet.cards import requested_gpus
from gpustack.offer.flavor.apply import answers, deletion
from gpustack.offer.flavor.changes import changes, with_projects
from gpustack.offer.flavor.compare import Questions
from gpustack.offer.flavor.flavors import PresentFlavor, gpus_without_spec, present_flavors
from gpustack.offer.flavor.manual import find_flavor
from gpustack.offer.flavor.operations import FlavorOperation
from gpustack.spec.extra_specs import AFFINITY, ALIAS
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
        spec = read_spec(parsed_args.spec)
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
            lambda flavor: _asked(_gpus(spec, flavor)) or flavor.extra_specs.get(ALIAS, ""),
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
        spec = read_spec(parsed_args.spec)
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
        if not is_for_machines(parsed_args):
            fields = {key: _in_words(value) for key, value in fields.items()}
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
        failures: list[CloudError | FlavorError] = []
        operations = []
        for name in names:
            try:
                operations.append(deletion(cloud, find_flavor(present, name), force=parsed_args.force))
            except (CloudError, FlavorError) as error:
                if len(names) == 1:
                    raise
                self.report(str(error), error=True)
                failures.append(error)
        self.change(parsed_args, list({operation.flavor.id: operation for operation in operations}.values()))
        if failures:
            raise FlavorError(f"{len(failures)} of {len(names)} flavors were not deleted")


def read_spec(path: Path | None) -> Spec | None:
    """The spec, if a path is given."""
    return load_spec(path) if path is not None else None


def _gpus(spec: Spec | None, flavor: PresentFlavor) -> dict[str, int]:
    specs = flavor.extra_specs
    return (requested_gpus(spec, specs) if spec is not None else {}) or gpus_without_spec(specs)


def _asked(gpus: Mapping[str, int]) -> str:
    return ", ".join(f"{alias}:{count}" for alias, count in gpus.items())


def _models(spec: Spec | None, gpus: Mapping[str, int]) -> list[str]:
    return [] if spec is None else [model for alias in gpus for model in spec.models_of(alias)]


def _numa_policy(spec: Spec | None, flavor: PresentFlavor) -> str | None:
    affinity = flavor.extra_specs.get(AFFINITY)
    if affinity is not None or spec is None:
        return affinity
    policies = [spec.models[model].numa_policy for model in _models(spec, flavor.gpus)]
    return next((policy for policy in policies if policy), None)


def _in_words(value: object) -> object:
    if isinstance(value, dict):
        return printable("\n".join(f"{key}={entry}" for key, entry in value.items()))
    if isinstance(value, list):
        return printable("\n".join(map(str, value)))
    return printable(value) if isinstance(value, str) else "" if value is None else value
