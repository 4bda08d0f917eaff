"""``gpustack playbook path`` and ``gpustack monitoring path``: files that come with gpustack."""

import argparse
from collections.abc import Sequence
from typing import Any

from gpustack.base.errors import GpustackError, UsageError
from gpustack.base.files import collection_dir, data_dir, share_dir
from gpustack.cli.common import ShowOne


class PathCommand(ShowOne):
    """A command that prints paths; with NAME, only one."""

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Sequence[Any]) -> int:
        """Print only the path for a NAME, unless another format is chosen."""
        if parsed_args.name is None or parsed_args.formatter != "table":
            return int(super().produce_output(parsed_args, column_names, data))
        print(*data, file=self.app.stdout)
        return 0


class PlaybookPathCommand(PathCommand):
    """Print the paths of the playbooks, their roles and the templates.

    With NAME, print only this path, for ansible-playbook.
    """

    epilog = """\
gpustack playbook path prepare;
ansible-playbook -i inventory "$(gpustack playbook path prepare)" -e gpustack_spec=gpustack.yaml --check --diff"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        about = "a playbook (prepare, verify, undo, nova, …), roles or templates"
        parser.add_argument("name", nargs="?", metavar="NAME", help=about)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Check that all directories exist and return their paths."""
        collection, templates = collection_dir(), share_dir("templates")
        directories = {"playbooks": collection / "playbooks", "roles": collection / "roles", "templates": templates}
        for name, path in directories.items():
            if not path.is_dir():
                remedy = "install gpustack again (pip install --force-reinstall nova-gpustack)"
                raise GpustackError(f"the {name} are missing from this installation", where=str(path), remedy=remedy)
        if (name := parsed_args.name) is not None:
            paths = directories | {path.stem: path for path in sorted(directories["playbooks"].glob("*.yml"))}
            if (stem := name.removesuffix(".yml")) not in paths:
                raise UsageError(f"there is no playbook {name}", remedy=f"names: {', '.join(paths)}")
            directories = {name: paths[stem]}
        return tuple(directories), tuple(map(str, directories.values()))


_FILES = {"alerts": "alerts.yml", "dashboard": "dashboard.json"}


class MonitoringPathCommand(PathCommand):
    """Print the paths of the alert rules for Prometheus and the dashboard for Grafana.

    With NAME, print only this path.
    """

    epilog = """\
gpustack monitoring path; promtool check rules "$(gpustack monitoring path alerts)";
cp "$(gpustack monitoring path alerts)" /etc/prometheus/gpustack-alerts.yml"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", nargs="?", choices=tuple(_FILES), metavar="NAME", help="alerts or dashboard")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], tuple[str, ...]]:
        names = [parsed_args.name] if parsed_args.name else list(_FILES)
        return tuple(names), tuple(str(data_dir("monitoring") / _FILES[name]) for name in names)
