"""Compare the findings of lint with the verdicts of an installed Nova."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpustack.base.errors import HostError, UsageError
from gpustack.base.findings import Basis, Code, Finding, Severity, definitions, finding
from gpustack.configure.installed import launch
from gpustack.configure.sources import PLACEMENT, READERS, HostNames, Source, guessed, split
from gpustack.connect.ssh.config import SshOptions
from gpustack.hosts.facts.bundle import bundled
from gpustack.nova_options import releases
from gpustack.nova_options.config import NovaConfiguration, parse_files
from gpustack.nova_options.options import Release

if TYPE_CHECKING:
    from gpustack.hosts.facts.model import Host

_JOBS = "'gpustack: the jobs'"
_VERSION = re.compile(r"\A[0-9]{1,4}\.[\w.+-]{1,60}\Z", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """What an installed Nova makes of configurations.

    :ivar version: the version of Nova; empty if it did not run.
    :ivar by_source: the refused steps of each configuration, in the order of the sources.
    :ivar failure: why Nova did not run.
    """

    version: str = ""
    by_source: Sequence[Sequence[Mapping[str, Any]]] = ()
    failure: str = ""


def program(jobs: str = _JOBS) -> str:
    """The program for Nova's Python, with its jobs as Python's source."""
    title = "Print what the installed Nova makes of configurations, as JSON."
    return bundled("gpustack.configure.installed.program", title, jobs)


def functions(host: Host) -> list[dict[str, Any]]:
    """A host's functions in the format of the program."""
    return [
        {
            "address": f.address,
            "vendor": f.vendor,
            "product": f.product,
            "parent": f.physical_function,
            "total_vfs": f.sriov_totalvfs,
            "numa_node": f.numa_node,
        }
        for f in host.pci
    ]


def job(source: Source, hosts: HostNames) -> dict[str, Any]:
    """The job for a configuration; with the devices of its host, if the facts of one host belong to it."""
    files = {file: _text(source.configuration, file) for file in source.configuration.files}
    of_source = hosts.having(source)
    one = of_source[0] if len(of_source) == 1 and "compute" in source.services else None
    return {
        "files": files,
        "services": source.services,
        "functions": functions(one) if one else None,
        "interfaces": {net.name: f.address for f in one.pci for net in f.uses.net} if one else {},
        "sysfs": all(file.startswith("/etc/") for file in files),
    }


def _text(configuration: NovaConfiguration, file: str) -> str:
    """The text of a file; of a YAML file, an override or a template, its settings as the deployment tool writes them.

    A Jinja expression is not evaluated: its line is left out.
    """
    path = Path(file)
    is_read = path.is_file() and path.suffix not in (".yaml", ".yml") and not configuration.overrides
    if is_read and "{{" not in (text := path.read_text(encoding="utf-8")):
        return text
    settings = (setting for setting in configuration.settings if setting.file == file and not setting.is_template)
    lines = ((s.group, s.name, s.written.replace("\n", "\n  ")) for s in settings)
    return "".join(f"[{group}]\n{name} = {text}\n" for group, name, text in lines)


def local(nova: str, sources: Sequence[Source], hosts: Sequence[Host], timeout: float) -> Verdicts:
    """The verdicts of a Nova on this machine: one process for all configurations."""
    of_nova = [source for source in sources if source.services != (PLACEMENT,)]
    names = HostNames(hosts)
    try:
        answer = launch.run(nova, program(ascii([job(source, names) for source in of_nova])), timeout)
    except launch.LaunchError as error:
        return Verdicts(failure=str(error))
    refused = iter([entry["refused"] for entry in answer["answers"]])
    return Verdicts(
        version=answer["version"],
        by_source=[next(refused) if source.services != (PLACEMENT,) else () for source in sources],
    )


def on_host(host: str, nova: str, arguments: Sequence[str], options: SshOptions) -> tuple[tuple[Source, ...], Verdicts]:
    """The configurations of a host, and the verdicts of its Nova, in one SSH session.

    :raises HostError: if the host can't be reached, or answers in another form.
    """
    from gpustack.connect.ssh.connection import Connections

    request = {
        "nova": nova,
        "arguments": [_argument(argument) for argument in arguments],
        "program": program(),
        "jobs_mark": _JOBS,
        "timeout": options.timeout,
    }
    title = "Read and check Nova's configuration on this host."
    text = bundled("gpustack.configure.installed.launch", title, ascii(request))
    with Connections(options) as connections:
        result: dict[str, Any] = connections.run(host, text.encode())
    services = {service: service for service in (*READERS, PLACEMENT)}
    try:
        sources = tuple(
            Source(
                label=f"{host}:{entry['label']}",
                services=tuple(services[service] for service in entry["services"]),
                readers=tuple(services[service] for service in entry["readers"]),
                configuration=parse_files({f"{host}:{name}": content for name, content in entry["files"].items()}),
                named=True,
                hosts=(host,),
            )
            for entry in result.get("jobs", ())
        )
        if "failed" in result:
            return sources, Verdicts(failure=f"{host}: {result['failed']}")
        (version,) = _VERSION.findall(result["answer"]["version"])
        by_source = [entry["refused"] for entry in result["answer"]["answers"]]
        for refusal in (refusal for _, refused in zip(sources, by_source, strict=True) for refusal in refused):
            "".join((refusal["step"], refusal["option"], refusal["error"], *refusal["services"]))  # all are texts
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # a host can print anything
        remedy = "check that nothing replaces its python3, or the program of --with-nova"
        raise HostError("its answer has another form than expected", where=host, remedy=remedy) from error
    return sources, Verdicts(version=version, by_source=by_source)


def _argument(argument: str) -> dict[str, Any]:
    services, text = split(argument)
    paths = [part for part in text.split(":") if part]
    return {"label": text, "services": services or guessed(Path(paths[-1])), "paths": paths}


def release_of(version: str, wanted: str | None) -> Release:
    """The release of an installed Nova.

    :raises UsageError: when it is not the wanted release, or gpustack has no tables for it.
    """
    major = int(version.partition(".")[0])
    known = releases.releases()
    installed = next((release for release in known if release.major == major), None)
    nearest = min(known, key=lambda release: abs(release.major - major))
    if installed is None:
        remedy = f"the nearest is {nearest}: --release {nearest}, without --with-nova"
        raise UsageError(f"Nova {version} is of a release that gpustack has no tables for", remedy=remedy)
    if wanted is not None and releases.release(wanted) != installed:
        what = f"--release {wanted} contradicts the installed Nova {version}, which is of {installed}"
        raise UsageError(what, remedy=f"leave --release out, or name {installed}")
    return installed


def compared(sources: Sequence[Source], findings: Sequence[Finding], verdicts: Verdicts) -> Iterator[Finding]:
    """Nova's refusals, and where lint and Nova disagree."""
    if verdicts.failure:
        yield finding(Code.NOVA_NOT_RUN, place="--with-nova", error=verdicts.failure)
        return
    pairs = list(zip(sources, verdicts.by_source, strict=True))
    files = {file for source, refused in pairs if refused for file in source.configuration.files}
    for source, refused in pairs:
        of_source = () if source.services == (PLACEMENT,) else findings
        starts = tuple(f"{file}:" for file in source.configuration.files)
        reported = [
            entry
            for entry in of_source
            if (entry.place == source.label or entry.place.startswith(starts))
            and definitions()[entry.code].basis is Basis.REFUSED
        ]
        if not refused:  # a service that reads the same file may be the one that refuses it
            reported = [e for e in reported if e.severity is Severity.ERROR and e.place.rpartition(":")[0] not in files]
        for refusal in refused:
            yield _refusal(source, refusal, verdicts.version)
        if bool(refused) != bool(reported):
            steps = ", ".join(dict.fromkeys(refusal["option"] or refusal["step"] for refusal in refused))
            codes = ", ".join(f"{entry.code} {entry.place}" for entry in reported)
            yield finding(
                Code.LINT_AND_NOVA_DISAGREE,
                place=source.label,
                version=verdicts.version,
                nova=f"refuses it ({steps})" if refused else "accepts it",
                lint=f"reports {codes}" if reported else "finds nothing that Nova refuses",
            )


def _refusal(source: Source, refusal: Mapping[str, Any], version: str) -> Finding:
    settings = [setting for setting in source.configuration.settings if setting.path == refusal["option"]]
    place = source.place(settings[-1] if settings else None)
    services = " and ".join(f"nova-{service}" for service in refusal["services"])
    error = " ".join(str(refusal["error"]).split())[:300]
    return finding(Code.NOVA_REFUSES, place=place, version=version, services=services, error=error)
