"""``gpustack nova lint`` and ``gpustack nova options``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TYPE_CHECKING

from gpustack.base.by_key import by_key
from gpustack.base.columns import Column
from gpustack.base.errors import NovaConfigError, UsageError
from gpustack.base.findings import errors
from gpustack.base.text import clipped, counted, in_lines
from gpustack.cli.common import Lister, add_exit_code, add_ssh_options, ssh_options
from gpustack.cli.options import add_snapshot, option, release_of, snapshot_hosts
from gpustack.cli.output import Table, table
from gpustack.configure.by_service import SERVICES, OptionByService, by_service
from gpustack.configure.installed import verdicts
from gpustack.configure.installed.verdicts import Verdicts
from gpustack.configure.reading import Read, read
from gpustack.configure.sources import kinds
from gpustack.nova_options import releases
from gpustack.nova_options.options import Option, Project, of_any_release

if TYPE_CHECKING:
    from gpustack.configure.lint import LintResult, Report
    from gpustack.hosts.facts.model import Host


class NovaLintCommand(Lister):
    """Check the GPU options of Nova's configuration.

    PATH is the configuration of one service: a file, a directory (nova.conf with its nova.conf.d), files joined by ':',
    YAML of RHOSO, OpenStack-Helm or OpenStack-Ansible, or a directory that `gpustack nova render` wrote. SERVICE=PATH
    names the service; otherwise the file's name does, and a plain nova.conf belongs to all services of Nova. The exit
    code is 20 if there is an error.
    """

    epilog = """\
gpustack nova lint /etc/nova --release 2025.2; gpustack nova lint rendered --spec gpustack.yaml;
gpustack nova lint api=ctl01/nova.conf compute=gpu01/nova.conf scheduler=ctl01/nova.conf --snapshot hosts.json"""

    _report: Report

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("paths", nargs="+", metavar="[SERVICE=]PATH", help="configuration of a service")
        option(parser, "--spec SPEC", "check for release, aliases, flavors and networks of this spec")
        text = "check for this release of Nova, such as 2025.2 or yoga (default: that of SPEC, or the newest)"
        option(parser, "--release NAME", text)
        option(parser, "--service …", "service of each PATH without a name", choices=SERVICES)
        option(parser, "--services", "show which service sets, lacks or does not read each option")
        add_snapshot(parser, ", and compare")
        option(
            parser,
            "--with-nova NOVA",
            "check with the steps of the services' start in an installed Nova: an interpreter, a virtual"
            " environment, a program such as /usr/bin/nova-compute, podman:CONTAINER or docker:CONTAINER",
        )
        remote = parser.add_argument_group("another host", "~/.ssh/config and known hosts apply")
        option(remote, "--on HOST", "read PATH and run NOVA on this host, over SSH")
        add_ssh_options(remote, timeout=60.0)
        add_exit_code(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Run the checks and lay out their results like nova-status."""
        hosts = snapshot_hosts(parsed_args, self.report)
        with ThreadPoolExecutor(1) as beside:  # The rest of gpustack loads and checks while Nova works.
            configurations, installed = _read(parsed_args, hosts, beside)
            from gpustack.configure.lint import lint
            from gpustack.configure.lint.subject import LintSubject
            from gpustack.spec.load import load_spec

            spec = load_spec(parsed_args.spec, hosts) if parsed_args.spec else None
            release = release_of(parsed_args.release, spec)
            if installed and not parsed_args.release and installed().version:
                release = verdicts.release_of(installed().version, None)
            if parsed_args.release is None and spec is None:
                self.report(f"checked for Nova {release}" + ("" if installed else "; --release selects another"))
            known = LintSubject.of_spec(spec, release, hosts) if spec else LintSubject(release=release, hosts=hosts)
            self._report = lint(configurations, known, installed)
        if installed and installed().version:
            verdicts.release_of(installed().version, parsed_args.release)
        if parsed_args.services:
            return table(parsed_args, _BY_SERVICE, list(by_service(configurations.sources, release)))
        return table(parsed_args, _CHECKS, self._report.results)

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Report the findings and return the exit code."""
        self.report_findings(self._report.findings)
        if failed := errors(self._report.findings):
            count = counted(len(failed), "error")
            raise NovaConfigError(f"{count} in the configuration", remedy="see the findings above")


class NovaOptionsCommand(Lister):
    """List the options of a release of Nova, with type, limits, default, the services that read them, and source.

    NAME is a part of "[SECTION] OPTION", also of a deprecated or later name, such as pci or cpu_dedicated_set. The
    services are known for options that concern GPUs.
    """

    epilog = "gpustack nova options pci --release 2025.2; gpustack nova options --service compute -f json"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", nargs="?", default="", metavar="NAME", help="list only options with this text")
        option(parser, "--release R", "release of Nova (default: the newest)")
        parser.add_argument("--service", choices=SERVICES, help="list only options that this service reads")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """List the options in the order of the tables."""
        release = release_of(parsed_args.release, None)
        project: Project = "placement" if parsed_args.service == "placement" else "nova"
        known, every = releases.table(release, project), of_any_release(project).values()
        later = by_key((old, option.path) for options in every for option in options for old in option.old_names)
        wanted = re.sub(r"^\[?([\w*-]+)[]./][/.\s]*", r"\n\1/", parsed_args.name.lower())
        options = [
            o
            for o in known.named.values()
            if wanted in "\n".join(("", o.path, *o.old_names, *later.get(o.path, ()))).lower()
            and (parsed_args.service in (None, "placement") or kinds([parsed_args.service])[0] in o.services)
        ]
        if not options:
            raise UsageError(f"Nova {release} has no such option", remedy="name a part of its name, or --release")
        return table(parsed_args, _OPTIONS, options)


def _default(option: Option) -> str:
    if option.computed:
        return "(computed)"
    value = option.default
    return ",".join(map(str, value)) if isinstance(value, tuple) else "" if value is None else str(value)


_OPTIONS: tuple[Column[Option], ...] = (
    Column("Option", lambda option: f"[{option.group}] {option.name}", "Option"),
    Column("Type", lambda option: option.type.name, "Type"),
    Column("Limits", lambda option: option.type.limits, "Limits", lambda option: option.type.limits or " "),
    Column("Default", lambda option: _default(option), "Default", lambda option: _default(option) or " "),
    Column("Services", lambda option: ", ".join(option.programs), "Services"),
    Column("Source", lambda option: option.source, "Source"),
)


def _state(of: str) -> Column[OptionByService]:
    return Column(of, lambda row: row.states.get(of) or None, of, lambda row: row.states.get(of) or " ")


_BY_SERVICE: tuple[Column[OptionByService], ...] = (
    Column("Option", lambda row: f"[{row.option.group}] {row.option.name}", "Option"),
    *map(_state, SERVICES),
    Column(
        "Settings",
        lambda row: [{"service": of, "place": s.place, "value": s.value} for of, s in row.settings],
        "Settings",
        lambda row: in_lines(dict.fromkeys(clipped(s.value) for _, s in row.settings)) or " ",
        lines=True,
    ),
)
_CHECKS: tuple[Column[LintResult], ...] = (
    Column("Check", lambda result: result.title, "Check"),
    Column("Result", lambda result: result.word, "Result"),
    Column(
        "Details",
        lambda result: [finding.to_dict() for finding in result.findings],
        "Details",
        lambda result: in_lines(f"{f.code} {f.place}" for f in result.findings) or " ",
        lines=True,
    ),
)


def _read(
    parsed_args: argparse.Namespace, hosts: Sequence[Host], beside: Executor
) -> tuple[Read, Callable[[], Verdicts] | None]:
    """The configurations, and what waits for the verdicts of the installed Nova."""
    prefix = f"{','.join(parsed_args.service)}=" if parsed_args.service else ""
    paths = [path if "=" in path.partition("/")[0] else f"{prefix}{path}" for path in parsed_args.paths]
    if parsed_args.on and not parsed_args.with_nova:
        raise UsageError("--on needs --with-nova", remedy="name the host's Nova: --with-nova /usr/bin/nova-compute")
    if parsed_args.on:
        options = ssh_options(parsed_args)
        sources, installed = verdicts.on_host(parsed_args.on, parsed_args.with_nova, paths, options)
        return Read(sources=sources), lambda: installed
    configurations = read(paths)
    if not parsed_args.with_nova:
        return configurations, None
    given = parsed_args.with_nova, configurations.sources, hosts, parsed_args.timeout
    return configurations, beside.submit(verdicts.local, *given).result
