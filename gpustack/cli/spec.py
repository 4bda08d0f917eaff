"""``gpustack spec …``: write a first spec, check one, print its JSON schema."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpustack.base.errors import UsageError
from gpustack.base.files import write_atomic
from gpustack.base.findings import Finding, Severity
from gpustack.base.text import counted
from gpustack.cli import common
from gpustack.cli.options import add_snapshot, option, release_of, snapshot_hosts
from gpustack.hosts.facts.model import Host
from gpustack.offer.flavor.desired import wanted
from gpustack.offer.guest.requirements import conflicts
from gpustack.spec.document import Problem
from gpustack.spec.initial import initial_spec
from gpustack.spec.load import Examination, examine_file
from gpustack.spec.model import Spec, with_groups
from gpustack.spec.schema import SCHEMA_FILE


class SpecCheckCommand(common.ShowOne):
    """Check a spec, and report every error and warning in it.

    An error is printed with line, column, path and a suggestion, and the exit code is 10. A warning is about a valid
    but unusual entry. With -f json, errors and warnings are data.

    Findings report flavors whose models no single guest driver serves. With --snapshot, the flavors are also compared
    with the facts of hosts, as `gpustack flavor plan` does: GPUs, NUMA nodes, memory pages, address space. Warnings and
    findings change the exit code only with --exit-code.
    """

    _examination: Examination

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
        common.add_exit_code(parser)
        add_snapshot(parser, ", and compare the flavors")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """The counts of the spec, or of its problems."""
        self._examination = examination = examine_file(parsed_args.spec)
        if spec := examination.spec:
            problems = (*examination.problems, *_release_problems(spec))
            self._examination = examination = replace(examination, problems=problems)
            read = snapshot_hosts(parsed_args, self.report)
            self._findings = (*conflicts(spec), *(_compared(spec, read) if parsed_args.snapshot else ()))
        as_data = common.is_for_machines(parsed_args)
        lists: dict[str, list[Any]] = {
            "models": list(spec.models if spec else ()),
            "hosts": list(spec.hosts if spec else ()),
            "problems": [problem.to_dict() if as_data else str(problem) for problem in examination.problems],
            "findings": [f.to_dict() if as_data else f"{f.code} {f.place}" for f in self._findings],
        }
        return ("file", "valid", *lists), (str(parsed_args.spec), spec is not None, *lists.values())

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Sequence[Any]) -> int:
        """Print one line for people, unless another format or a column is requested."""
        if parsed_args.formatter != "table" or parsed_args.columns:
            return int(super().produce_output(parsed_args, column_names, data))
        if (spec := self._examination.spec) is not None:
            models, hosts = counted(len(spec.models), "model"), counted(len(spec.hosts), "host pattern")
            print(f"{parsed_args.spec}: valid, {models}, {hosts}", file=self.app.stdout)
        return 0

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Report warnings; raise errors as one SpecError."""
        warnings = [problem for problem in self._examination.problems if problem.severity is Severity.WARNING]
        for problem in warnings:
            self.report(f"warning: {self._examination.where}:{problem}")
        self.report_findings(self._findings)
        self._examination.checked()
        self.outcome = self._usual_outcome(parsed_args)  # a warning plans nothing
        self.to_do = bool(warnings)


def _release_problems(spec: Spec) -> Iterator[Problem]:
    """A warning about a release of Nova that gpustack does not know: commands that need none accept it."""
    try:
        release_of(None, spec if spec.nova else None)
    except UsageError as error:
        yield Problem(path="$.nova.release", message=f"{error.what}; {error.remedy}", severity=Severity.WARNING)


def _compared(spec: Spec, hosts: Sequence[Host]) -> Sequence[Finding]:
    """The findings about the spec's flavors on the hosts of a snapshot."""
    release = release_of(None, spec if spec.nova else None)
    resolved = with_groups(spec, {host.hostname: host.inventory_groups for host in hosts})
    return wanted(resolved, release=release, hosts=hosts).findings


class SpecInitCommand(common.Command):
    """Write a first spec from the GPUs of hosts.

    Reads hosts as `gpustack scan` does, and prints a gpustack.yaml with their GPUs for you to edit. Unreadable hosts
    are reported at the end and named in a comment; the spec is written from the others.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        common.add_source_options(parser, common.THIS_MACHINE)
        option(parser, "--out FILE", "write FILE instead of standard output")
        option(parser, "--force", "replace FILE if it exists")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Read the hosts and write the spec; without a GPU, nothing is written."""
        out: Path | None = parsed_args.out
        if out is None and parsed_args.force:
            raise UsageError("--force goes with --out FILE")
        _refuse(out, force=parsed_args.force)
        gathered = common.gather(self, parsed_args)
        if gathered.hosts:
            text = initial_spec(gathered.hosts, unread=[failure.host for failure in gathered.failures])
            if out is None:
                print(text, end="", file=self.app.stdout)
            else:
                _refuse(out, force=parsed_args.force)
                write_atomic(out, text, mode=0o644)
                self.report(f"{out}: written, from {counted(len(gathered.hosts), 'host')}")


class SpecSchemaCommand(common.Command):
    """Print the JSON schema of the spec, for editors and other tools."""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        print(SCHEMA_FILE.read_text(encoding="utf-8"), end="", file=self.app.stdout)


def _refuse(out: Path | None, *, force: bool) -> None:
    """Refuse to replace an existing file without ``--force``, and anything but a regular file.

    :raises UsageError: when the file must not be replaced.
    """
    if out is None or not (out.exists() or out.is_symlink()):
        return
    if not force:
        raise UsageError("exists already", where=str(out), remedy="--force replaces it; or name another file")
    if not out.is_file() or out.is_symlink():
        raise UsageError("is not a plain file, so it is not replaced", where=str(out), remedy="name another file")
