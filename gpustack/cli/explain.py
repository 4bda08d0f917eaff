"""``gpustack explain``: explain a finding, a class of clean-up or a card, from gpustack's own data."""

import argparse

from gpustack.base.errors import UsageError
from gpustack.cli.common import Command, add_format
from gpustack.cli.options import option


class ExplainCommand(Command):
    """Explain a finding, a class of clean-up, a card or a message of a kernel. Reads no host and no cloud.

    A finding is named by its code, a class by its letter or name, a card by vendor:device or by words of its name.
    """

    epilog = (
        "gpustack explain GPU112; gpustack explain migration-pinned; gpustack explain 10de:20b5; gpustack explain A100"
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("subject", nargs="*", metavar="CODE|CLASS|CARD", help="code of a finding, class, or card")
        option(parser, "--message TEXT", "explain this message of a kernel or a driver")
        add_format(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        subject = " ".join(parsed_args.subject)
        if bool(subject) == (parsed_args.message is not None):
            raise UsageError("one subject is needed", remedy="name a code, a class or a card, or use --message TEXT")
        from gpustack.cli import explanation  # other commands import this module, because they may name it as the next

        shown = explanation.of(subject) if subject else explanation.of_message(parsed_args.message)
        if parsed_args.format == "text":
            for line in shown.lines:
                self.show(line)
        else:
            text = "\n".join(shown.lines).splitlines()
            data = {"subject": subject or parsed_args.message, "kind": shown.kind, **shown.values, "text": text}
            self.show_data(data, parsed_args.format)
