"""``gpustack host results``: the results of a fleet, from the records of its runs."""

import argparse
from pathlib import Path

from gpustack.base.errors import JournalError
from gpustack.base.files import json_files
from gpustack.cli.common import add_each, add_format
from gpustack.cli.host_playbooks import Results
from gpustack.connect.playbooks.results import LEFT_BY, joined, load
from gpustack.connect.playbooks.show import verdict


class HostResultsCommand(Results):
    """Print the results of a fleet from the records of runs on its parts. Connects to no host.

    Each run leaves a record: a run of AWX, a slice of a job, a `host apply` with a limit. A host of the spec that no
    record has counts as unreachable. The exit code is that of the most severe result, as of `host apply`.
    """

    epilog = """\
gpustack host results records/; gpustack host results rack1.json rack2.json --each;
gpustack host results records/*.json -f json"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        about = "a record, or a directory with records (*.json)"
        parser.add_argument("records", nargs="+", type=Path, metavar="RECORD", help=about)
        add_each(parser)
        add_format(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        run = joined({str(path): load(path) for path in json_files(parsed_args.records, JournalError, LEFT_BY)})
        self.playbook = run.playbook
        self._show_texts(parsed_args, run.hosts)
        self._summarize(parsed_args, run.hosts, checked=run.checked)

    def after(self, parsed_args: argparse.Namespace) -> None:
        """End with the error of the most severe outcome."""
        if error := verdict(self._records, "see the logs of the runs"):
            raise error
