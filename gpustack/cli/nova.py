"""``gpustack nova render``."""

import argparse
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import get_args

from gpustack.base.by_key import by_key
from gpustack.base.errors import NovaConfigError, UsageError
from gpustack.base.findings import Code, errors
from gpustack.base.host_groups import host_groups, pattern, patterns_of
from gpustack.base.operations import RemoveFile, WriteFile
from gpustack.base.text import counted
from gpustack.cli.common import Command, add_each, add_exit_code, add_format, add_source_options, gather
from gpustack.cli.inventory import expanded, in_spec
from gpustack.cli.options import option, release_of
from gpustack.configure.desired import wanted
from gpustack.configure.inspection import existing_for
from gpustack.configure.output import carry_out, changes, stale
from gpustack.configure.render import places, render, usual_root
from gpustack.configure.rendered import Rendering
from gpustack.configure.sources import PLACEMENT, SERVICES
from gpustack.hosts.facts.model import Host
from gpustack.spec.deployment import Deployment
from gpustack.spec.load import load_spec
from gpustack.spec.model import Spec, patterns_for, with_groups

_SERVICES = (*SERVICES, PLACEMENT)


class NovaRenderCommand(Command):
    """Render Nova's configuration for the GPUs of a spec, from the facts of its hosts.

    Needs the facts of all hosts, usually from a snapshot, because the API must know every alias. With --snapshot and
    HOST, renders only the files of these compute hosts. Without --out, prints the files.
    """

    epilog = """\
gpustack nova render gpustack.yaml --snapshot hosts.json --out rendered;
gpustack nova render gpustack.yaml --snapshot hosts.json --from scheduler=/etc/nova --diff;
gpustack nova render gpustack.yaml gpu01 --snapshot hosts.json --service compute"""

    _spec: Spec
    _rendering: Rendering
    _deployment: Deployment

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("spec", type=Path, metavar="SPEC", help="the spec, usually gpustack.yaml")
        add_source_options(parser)
        add_each(parser)
        services = "render for this service and those that share its file (default: all)"
        option(parser, "--service …", services, choices=_SERVICES)
        text = (
            "read an existing configuration: a file, a directory, or files joined by ':'. Its filter list is"
            " kept, and contradicting lines are reported"
        )
        option(parser, "--from [SERVICE=]PATH…", text, dest="existing")
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

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        spec = load_spec(parsed_args.spec)
        wanted_hosts = expanded(parsed_args.hosts) if parsed_args.snapshot else None
        named, parsed_args.hosts = parsed_args.hosts, [] if parsed_args.snapshot else parsed_args.hosts
        gather(self, parsed_args, spec)
        spec = self._spec = with_groups(spec, self._gathered.groups)
        self._deployment = parsed_args.deployment or (spec.nova.deployment if spec.nova else "drop-in")
        self._rendering = self._rendered(spec, self._gathered.hosts, parsed_args, wanted_hosts or None)
        if not (wanted_hosts or errors(self._rendering.findings)):
            self._report_others()
        parsed_args.hosts = named  # for the next command
        if parsed_args.format != "text":
            self.show_data(self._as_data(), parsed_args.format)
        elif errors(self._rendering.findings):
            return
        elif parsed_args.diff:
            self._print_diff(parsed_args)
        elif parsed_args.out is None:
            self._print_files(parsed_args)
        if parsed_args.out and not parsed_args.diff and not errors(self._rendering.findings):
            removals = self._stale(parsed_args)
            self._write(parsed_args.out)
            self._clear(removals)

    def _rendered(
        self, spec: Spec, hosts: Sequence[Host], parsed_args: argparse.Namespace, only: Sequence[str] | None
    ) -> Rendering:
        known = {*in_spec(parsed_args, spec, {host.hostname: host.hostname for host in hosts}, self.report)}
        spec_hosts = tuple(host for host in hosts if host.hostname in known)
        if missing := sorted(set(only or ()) - known):
            files = ", ".join(map(str, parsed_args.snapshot))
            problem = f"no facts of {', '.join(missing)} in {files}, or no pattern of the spec fits"
            raise UsageError(problem, remedy="`gpustack scan HOST --save FILE` gathers facts")
        root = parsed_args.out or usual_root(self._deployment)
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
            stays=lambda host: bool(only) or (host not in known and patterns_for(spec, host)),
        )

    def _report_others(self) -> None:
        """Report the hosts that only the earlier content of a file of all hosts has."""
        kept = "the part of an earlier rendering is kept, because the spec has the host, and there are no facts"
        removed = "taking the part of an earlier rendering out"
        for stays, names in by_key((stays, name) for name, stays in self._rendering.others.items()).items():
            self.report(f"{pattern(names)}: {kept if stays else removed}")

    def _as_data(self) -> dict[str, object]:
        files = self._rendering.files
        owned = self._of_hosts((file.name, f"{file.name}\n{file.text}") for file in files)
        groups = patterns_of(host_groups((host, "".join(texts)) for host, texts in by_key(owned).items()))
        shown = [{**f.to_dict(), "group": groups[host] or f.name} for f, (host, _) in zip(files, owned, strict=True)]
        findings = [finding.to_dict() for finding in (*self._rendering.findings, *self._rendering.unknown)]
        return {"files": shown, "findings": findings}

    def _print_files(self, parsed_args: argparse.Namespace) -> None:
        files = self._rendering.files
        if len(files) == 1:
            print(files[0].text, end="", file=self.app.stdout)
        else:
            self.show_hosts(parsed_args, self._of_hosts((f.name, f"### {f.name}\n{f.text.rstrip()}") for f in files))
            self.show_total({"host": len(self._gathered.hosts), "file": len(files)}, {})

    def _print_diff(self, parsed_args: argparse.Namespace) -> None:
        root = parsed_args.out or usual_root(self._deployment)
        shown = [*changes(self._rendering.files, root), *self._stale(parsed_args)]
        self.to_do = bool(shown)
        texts = self._of_hosts((change.path, change.diff().removesuffix("\n")) for change in shown)
        self.show_hosts(parsed_args, texts, changes=True, between="\n")

    def _of_hosts(self, texts: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Texts with the host whose name is a part of their file's name, or with none."""
        hosts = {host.hostname for host in self._gathered.hosts}
        return [
            (next((part for part in re.split("[:/]", name) if part.removesuffix(".yml") in hosts), ""), text)
            for name, text in texts
        ]

    def _write(self, out: Path) -> None:
        # Of other tools, lint judges the files that they make of these on the hosts.
        self.outcome = "" if self._deployment == "drop-in" else "distributed"
        written = changes(self._rendering.files, out)
        for change in written:
            carry_out(change)
        changed, total = len(written), len(self._rendering.files)
        unchanged = f"; {total - changed} unchanged" if changed < total else ""
        self.report(f"{counted(changed, 'file')} written below {out}{unchanged}")

    def _stale(self, parsed_args: argparse.Namespace) -> list[WriteFile | RemoveFile]:
        """Files of an earlier rendering below ``--out`` that this one does not include.

        Empty for a partial rendering, and if a host could not be read or has no facts: its files are then unknown.
        """
        partly = (parsed_args.snapshot and parsed_args.hosts) or self._gathered.failures or self._rendering.unknown
        lacking = any(finding.code == Code.HOSTS_WITHOUT_FACTS for finding in self._rendering.findings)
        if parsed_args.out is None or parsed_args.service or partly or lacking:
            return []
        known, removals = {host.hostname for host in self._gathered.hosts}, []
        for change in stale(self._rendering.files, parsed_args.out, places(self._deployment, parsed_args.path)):
            names = Path(change.path).relative_to(parsed_args.out).parent.parts
            if any(name not in known and self._spec.host_patterns.matching(name) for name in names):
                self.report(f"{change.path}: kept, because a pattern of the spec matches its host, which has no facts")
            else:
                removals.append(change)
        return removals

    def _clear(self, removals: Sequence[WriteFile | RemoveFile]) -> None:
        """Remove stale files, and gpustack's part of shared files, after reporting each."""
        for change in removals:
            removed = "removing it, it is of an earlier rendering"
            kept = "taking the part of an earlier rendering out"
            self.report(f"{change.path}: {removed if change.kind == 'remove_file' else kept}")
            carry_out(change)

    def after(self, parsed_args: argparse.Namespace) -> None:
        """Report the findings. If there is an error among them, nothing was written."""
        unknown = self._rendering.unknown
        self.report_findings((*self._rendering.findings, *unknown))
        if stopped := errors(self._rendering.findings):
            count = "an error" if len(stopped) == 1 else f"{len(stopped)} errors"
            raise NovaConfigError(f"blocked by {count}; nothing was written", remedy="see the findings above")
        if unknown:
            hosts = ", ".join(dict.fromkeys(finding.place.partition(" ")[0] for finding in unknown))
            problem = f"no files for {hosts}: some facts are missing; existing files stay"
            raise NovaConfigError(problem, remedy="see the findings above")
