"""``gpustack nova …``: render and check Nova's configuration."""

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import get_args

from gpustack.base.columns import Column
from gpustack.base.errors import NovaConfigError, UsageError
from gpustack.base.findings import Code, Severity, errors
from gpustack.base.host_groups import host_groups, patterns_of
from gpustack.base.operations import RemoveFile, WriteFile, counted
from gpustack.base.text import printable
from gpustack.cli.common import (
    Command,
    Lister,
    add_each,
    add_exit_code,
    add_format,
    add_source_options,
    add_ssh_options,
    gather,
    release_of,
    ssh_options,
)
from gpustack.cli.inventory import expanded, in_spec
from gpustack.cli.options import option
from gpustack.cli.output import Table, table
from gpustack.configure.desired import wanted
from gpustack.configure.inspection import existing_for
from gpustack.configure.installed import verdicts
from gpustack.configure.installed.verdicts import Verdicts
from gpustack.configure.lint import LintResult, Read, Report, lint, read
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.output import carry_out, changes, stale
from gpustack.configure.render import places, render, usual_root
from gpustack.configure.rendered import Rendering
from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.store import load_snapshot
from gpustack.nova_options import releases
from gpustack.nova_options.releases import Option
from gpustack.spec.deployment import Deployment
from gpustack.spec.hosts import with_groups
from gpustack.spec.load import load_spec
from gpustack.spec.model import Spec

_SERVICES = ("api", "compute", "scheduler", "conductor", "placement")
_WRITTEN = "written"


class NovaRenderCommand(Command):
    """Render Nova's configuration for the GPUs of a spec, from the facts of its hosts.

    Needs the facts of all hosts, usually from a snapshot, because the API must know every alias. With --snapshot and
    HOST, renders only the files of these compute hosts. Without --out, prints the files.
    """

    epilog = """\
gpustack nova render gpustack.yaml --snapshot hosts.json --out rendered;
gpustack nova render gpustack.yaml --snapshot hosts.json --from scheduler=/etc/nova --diff;
gpustack nova render gpustack.yaml gpu01 --snapshot hosts.json --service compute"""

    _rendering: Rendering
    _deployment: Deployment
    _partly: bool

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
        add_source_options(parser)
        add_each(parser)
        option(parser, "--service …", "render for this service; can be repeated (default: all)", choices=_SERVICES)
        option(
            parser,
            "--from [SERVICE=]PATH…",
            "read an existing configuration: a file, a directory, or files joined by ':'. Its filter list is"
            " kept, and contradicting lines are reported",
            dest="existing",
            default=[],
        )
        option(parser, "--release NAME", "render for this release of Nova (default: that of the spec)")
        tool = "render for this deployment tool (default: that of the spec)"
        option(parser, "--deployment", tool, choices=get_args(Deployment))
        option(parser, "--all-in-one", "render one file for each compute host, because it runs the other services too")
        option(
            parser,
            "--path DIR",
            "write to this directory of the deployment tool, below --out (default: the usual one,"
            " such as /etc/kolla/config/nova)",
            type=str,
        )
        option(parser, "--out DIR", "write the files below DIR")
        option(parser, "--diff", "show the changes, and write nothing")
        add_exit_code(parser)
        add_format(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        spec = load_spec(parsed_args.spec)
        wanted_hosts = expanded(parsed_args.hosts) if parsed_args.snapshot else None
        if parsed_args.snapshot:
            parsed_args.hosts = []
        gather(self, parsed_args, spec)
        spec = with_groups(spec, self._gathered.groups)
        self._deployment = parsed_args.deployment or (spec.nova.deployment if spec.nova else "drop-in")
        self._partly = bool(wanted_hosts)
        self._rendering = self._rendered(spec, self._gathered.hosts, parsed_args, wanted_hosts or None)
        if parsed_args.format != "text":
            self.show_data(self._as_data(), parsed_args.format)
        elif errors(self._rendering.findings):
            return 0
        elif parsed_args.diff:
            self._print_diff(parsed_args)
        elif parsed_args.out is None:
            self._print_files(parsed_args)
        if parsed_args.out and not parsed_args.diff and not errors(self._rendering.findings):
            self._write(parsed_args.out)
            self._clear(parsed_args)
        return 0

    def _rendered(
        self, spec: Spec, hosts: Sequence[Host], parsed_args: argparse.Namespace, only: Sequence[str] | None
    ) -> Rendering:
        names = in_spec(parsed_args, spec, [host.hostname for host in hosts], self.report)
        spec_hosts = tuple(host for host in hosts if host.hostname in names)
        missing = sorted(set(only or ()) - {host.hostname for host in spec_hosts})
        if missing:
            raise UsageError(
                f"no facts of {', '.join(missing)} in {parsed_args.snapshot}, or no pattern of the spec fits",
                remedy="`gpustack scan HOST --save FILE` gathers facts",
            )
        root = parsed_args.out or self._usual_root()
        return render(
            wanted(spec, spec_hosts, release=release_of(parsed_args.release, spec)),
            deployment=self._deployment,
            services=tuple(s for s in _SERVICES if s in (parsed_args.service or _SERVICES)),
            existing=existing_for(
                self._deployment, arguments=parsed_args.existing, root=root, directory=parsed_args.path
            ),
            hosts=spec_hosts,
            only=only,
            together=parsed_args.all_in_one,
            root=root,
            directory=parsed_args.path,
        )

    def _as_data(self) -> dict[str, object]:
        files = self._rendering.files
        owned = self._of_hosts((file.name, f"{file.name}\n{file.text}") for file in files)
        texts: dict[str, str] = {}
        for host, text in owned:
            texts[host] = texts.get(host, "") + text
        groups = patterns_of(host_groups(texts.items()))
        return {
            "files": [{**f.to_dict(), "group": groups[host]} for f, (host, _) in zip(files, owned, strict=True)],
            "findings": [finding.to_dict() for finding in (*self._rendering.findings, *self._rendering.unknown)],
        }

    def _print_files(self, parsed_args: argparse.Namespace) -> None:
        files = self._rendering.files
        if len(files) == 1:
            print(files[0].text, end="", file=self.app.stdout)
        else:
            self.show_hosts(parsed_args, self._of_hosts((f.name, f"### {f.name}\n{f.text.rstrip()}") for f in files))
            self.show_total({"host": len(self._gathered.hosts), "file": len(files)}, {})

    def _of_hosts(self, texts: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Texts with the host whose name is a part of their file's name, or with this name."""
        hosts = {host.hostname for host in self._gathered.hosts}
        return [
            (next((part for part in re.split("[:/]", name) if part.removesuffix(".yml") in hosts), name), text)
            for name, text in texts
        ]

    def _usual_root(self) -> Path:
        """The directory to compare with if there is no --out: the usual parent of the deployment tool's directory."""
        return usual_root(self._deployment)

    def _print_diff(self, parsed_args: argparse.Namespace) -> None:
        shown = [
            *changes(self._rendering.files, parsed_args.out or self._usual_root()),
            *self._stale(parsed_args),
        ]
        self.to_do = bool(shown)
        texts = self._of_hosts((change.path, change.diff().removesuffix("\n")) for change in shown)
        self.show_hosts(parsed_args, texts, changes=True, between="\n")

    def _write(self, out: Path) -> None:
        written = changes(self._rendering.files, out)
        for change in written:
            carry_out(change)
        changed, total = len(written), len(self._rendering.files)
        unchanged = f"; {total - changed} unchanged" if changed < total else ""
        self.report(f"{counted(changed, 'file')} {_WRITTEN} below {out}{unchanged}")

    def _stale(self, parsed_args: argparse.Namespace) -> list[WriteFile | RemoveFile]:
        """Files of an earlier rendering below ``--out`` that this one does not include.

        Empty for a partial rendering, and if a host could not be read or has no facts: its files are then unknown.
        """
        partly = self._partly or self._gathered.failures or self._rendering.unknown
        if parsed_args.out is None or parsed_args.service or partly:
            return []
        if any(finding.code == Code.HOSTS_WITHOUT_FACTS for finding in self._rendering.findings):
            return []
        return list(stale(self._rendering.files, parsed_args.out, places(self._deployment, parsed_args.path)))

    def _clear(self, parsed_args: argparse.Namespace) -> None:
        """Remove stale files, and gpustack's part of shared files, after reporting each."""
        for change in self._stale(parsed_args):
            removed = "removing it, it is of an earlier rendering"
            kept = "taking the part of an earlier rendering out"
            self.report(f"{change.path}: {removed if change.kind == 'remove_file' else kept}")
            carry_out(change)

    def after(self, parsed_args: argparse.Namespace) -> int:
        """Report the findings. If there is an error among them, nothing was written."""
        unknown = self._rendering.unknown
        self.report_findings((*self._rendering.findings, *unknown))
        stopped = errors(self._rendering.findings)
        if stopped:
            count = "an error" if len(stopped) == 1 else f"{len(stopped)} errors"
            raise NovaConfigError(f"blocked by {count}; nothing was written", remedy="see the findings above")
        if unknown:
            hosts = ", ".join(dict.fromkeys(finding.place.partition(" ")[0] for finding in unknown))
            raise NovaConfigError(
                f"no files for {hosts}: some facts are missing; existing files stay", remedy="see the findings above"
            )
        return 0


class NovaLintCommand(Lister):
    """Check the GPU options of Nova's configuration.

    PATH is the configuration of one service: a file, a directory (nova.conf with its nova.conf.d), or files joined by
    ':'. SERVICE=PATH names the service (api, compute, scheduler, conductor, placement); otherwise the file's name does,
    and a plain nova.conf belongs to all services of Nova. PATH can also be a directory that `gpustack nova render`
    wrote. The exit code is 20 if there is an error.
    """

    epilog = """\
gpustack nova lint /etc/nova --release 2025.2; gpustack nova lint rendered --spec gpustack.yaml;
gpustack nova lint api=ctl01/nova.conf compute=gpu01/nova.conf scheduler=ctl01/nova.conf --snapshot hosts.json"""

    _report: Report

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("paths", nargs="+", metavar="[SERVICE=]PATH", help="configuration of a service")
        option(parser, "--spec SPEC", "check for release, aliases, flavors and networks of this spec")
        option(
            parser,
            "--release NAME",
            "check for this release of Nova, such as 2025.2 or yoga (default: that of SPEC, or the newest)",
        )
        option(parser, "--service …", "service of each PATH without a name; can be repeated", choices=_SERVICES)
        option(parser, "--snapshot FILE", "compare with the facts of hosts in a file of scan --save")
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
        hosts = load_snapshot(parsed_args.snapshot) if parsed_args.snapshot else ()
        prefix = f"{','.join(parsed_args.service)}=" if parsed_args.service else ""
        paths = [path if "=" in path.partition("/")[0] else f"{prefix}{path}" for path in parsed_args.paths]
        spec = load_spec(parsed_args.spec, hosts) if parsed_args.spec else None
        configurations, installed = _read(paths, hosts, parsed_args)
        release = release_of(parsed_args.release, spec)
        if installed and installed.version:
            release = verdicts.release_of(installed.version, parsed_args.release)
        if parsed_args.release is None and spec is None:
            self.report(f"checked for Nova {release}" + ("" if installed else "; --release selects another"))
        known = LintSubject.of_spec(spec, release, hosts) if spec else LintSubject(release=release, hosts=hosts)
        self._report = lint(configurations, known, installed)
        return table(parsed_args, _CHECKS, self._report.results)

    def after(self, parsed_args: argparse.Namespace) -> int:
        """Report the findings and return the exit code."""
        self.report_findings(self._report.findings)
        counts = Counter(found.severity for found in self._report.findings)
        if failed := counts[Severity.ERROR]:
            raise NovaConfigError(
                f"{failed} error{'s'[: failed > 1]} in the configuration", remedy="see the findings above"
            )
        return 0


class NovaOptionsCommand(Lister):
    """List the options of a release of Nova, with type, limits, default, the services that read them, and source.

    NAME is a part of "[SECTION] OPTION", such as pci or cpu_dedicated_set. The services are known for options that
    concern GPUs.
    """

    epilog = "gpustack nova options pci --release 2025.2; gpustack nova options --service compute -f json"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument("name", nargs="?", default="", metavar="NAME", help="list only options with this text")
        option(parser, "--release R", "release of Nova (default: the newest)")
        parser.add_argument("--service", choices=_SERVICES, help="list only options that this service reads")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """List the options in the order of the tables."""
        release = release_of(parsed_args.release, None)
        known = releases.table(release, "placement" if parsed_args.service == "placement" else "nova")
        wanted = parsed_args.name.lower()
        options = [
            o
            for o in known.named.values()
            if wanted in f"[{o.group}] {o.name}".lower()
            and (parsed_args.service in (None, "placement") or parsed_args.service in o.services)
        ]
        if not options:
            raise UsageError(f"Nova {release} has no such option", remedy="name a part of its section or name")
        return table(parsed_args, _OPTIONS, options)


def _default(option: Option) -> str:
    if option.computed:
        return "(computed)"
    return "" if option.default is None else str(option.default)


_OPTIONS: tuple[Column[Option], ...] = (
    Column("Option", lambda option: f"[{option.group}] {option.name}", "Option"),
    Column("Type", lambda option: option.type.name, "Type"),
    Column("Limits", lambda option: option.type.limits, "Limits", lambda option: option.type.limits or " "),
    Column("Default", lambda option: _default(option), "Default", lambda option: _default(option) or " "),
    Column("Services", lambda option: ", ".join(option.programs), "Services"),
    Column("Source", lambda option: option.source, "Source"),
)
_CHECKS: tuple[Column[LintResult], ...] = (
    Column("Check", lambda result: result.title, "Check"),
    Column("Result", lambda result: result.word, "Result"),
    Column(
        "Details",
        lambda result: [finding.to_dict() for finding in result.findings],
        "Details",
        lambda result: "\n".join(printable(f"{f.code} {f.place}", keep="") for f in result.findings) or " ",
        lines=True,
    ),
)


def _read(paths: Sequence[str], hosts: Sequence[Host], parsed_args: argparse.Namespace) -> tuple[Read, Verdicts | None]:
    """The configurations, and the verdicts of the installed Nova."""
    if parsed_args.on and not parsed_args.with_nova:
        raise UsageError("--on needs --with-nova", remedy="name the host's Nova: --with-nova /usr/bin/nova-compute")
    if parsed_args.on:
        options = ssh_options(parsed_args)
        sources, installed = verdicts.on_host(parsed_args.on, parsed_args.with_nova, paths, options)
        return Read(sources=sources), installed
    configurations = read(paths)
    if not parsed_args.with_nova:
        return configurations, None
    nova, timeout = parsed_args.with_nova, parsed_args.timeout
    return configurations, verdicts.local(nova, configurations.sources, hosts, timeout)
