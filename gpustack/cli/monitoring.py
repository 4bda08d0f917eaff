"""``gpustack monitoring path``: the alert rules and the dashboard that come with gpustack."""

import argparse

from gpustack.base.files import data_dir
from gpustack.cli.playbook import PathCommand

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
