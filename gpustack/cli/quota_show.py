"""``gpustack quota show``: limits of GPUs and their use, for administrators and for users of a project."""

import argparse
from collections.abc import Sequence
from dataclasses import replace

from gpustack.base.findings import Code, finding
from gpustack.cli.cloud import OpenStackCommand
from gpustack.cli.common import Lister, add_exit_code
from gpustack.cli.options import option
from gpustack.cli.output import Table, table
from gpustack.cloud.identity import Project
from gpustack.cloud.limits import LimitsCloud, Present
from gpustack.offer.quota.desired import wanted
from gpustack.offer.quota.shares import columns, shares
from gpustack.spec.load import load_spec


class QuotaShowCommand(OpenStackCommand, Lister):
    """Show the limits of GPUs of the own project, and its use.

    Every user can see the own project. Administrators can name projects, or list all.
    """

    epilog = """\
gpustack quota show;
gpustack quota show --all-projects -f json;
gpustack quota show --project research"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        add_exit_code(parser)
        choice = parser.add_mutually_exclusive_group()
        option(choice, "--project PROJECT…", "show this project, by name or id")
        option(choice, "--all-projects", "show all projects")
        option(parser, "--spec SPEC", "show the models of this spec (default: those that gpustack limits)")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """One row for each project and model."""
        models = wanted(load_spec(parsed_args.spec)).models if parsed_args.spec else {}
        present, (projects, everyone) = self._read(LimitsCloud(self.connection(parsed_args)), parsed_args)
        if not (rows := list(shares(present, projects, models))):
            missing = "limit for a GPU" if present.defaults else "limits, so no unified limits"
            self._findings = [finding(Code.NO_GPU_LIMITS, place="Keystone", missing=f"no registered {missing}")]
        if not present.complete:
            self._findings = [*self._findings, finding(Code.LIMITS_INCOMPLETE, place="Keystone")]
        return table(parsed_args, columns(everyone), rows)

    def _read(self, cloud: LimitsCloud, parsed_args: argparse.Namespace) -> tuple[Present, list[Sequence[Project]]]:
        if not parsed_args.project and not parsed_args.all_projects:
            present, project = cloud.own()
            return present, [[project], [project]]
        present, everyone = cloud.present(), cloud.projects()
        projects = [cloud.named_project(name) for name in dict.fromkeys(parsed_args.project)] or everyone
        return replace(present, used={project.id: cloud.used(project.id) for project in projects}), [projects, everyone]
