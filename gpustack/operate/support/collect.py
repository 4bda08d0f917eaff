"""Collect what a support bundle contains: each source on its own, since a broken one is a reason to ask for support.

The archive has files, masked, and the manifest.
"""

import contextlib
import gzip
import hashlib
import importlib.metadata
import io
import json
import platform
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby, islice, starmap
from pathlib import Path
from typing import Any

from gpustack.base.columns import Column, described
from gpustack.base.errors import ApplyError, GpustackError, JournalError
from gpustack.base.files import file_errors, read_text, user_name, write_atomic
from gpustack.base.known_secrets import MASK
from gpustack.changes import journal
from gpustack.cloud import Connection, servers
from gpustack.cloud.boot import BootRecord, boot
from gpustack.cloud.session import sign_in
from gpustack.nova_options.config import files_of, parse_files
from gpustack.nova_options.masking import Masking
from gpustack.nova_options.scheduler import scheduler
from gpustack.novadb.hardware import device_specs
from gpustack.operate.doctor.check import Check
from gpustack.operate.why import host, instance
from gpustack.operate.why.links import HOST_COLUMNS
from gpustack.operate.why.read import WhySources
from gpustack.spec import document
from gpustack.spec.load import parse_spec

MOST = 50 << 20
"""The permitted size of all files together, and so of the archive, in bytes."""
_FRAME, _MANIFEST = 2048, 1 << 20
"""The bytes of a file in an archive beside its content, and those that are kept for the manifest."""


@dataclass(frozen=True, kw_only=True)
class BundlePart:
    """A file of the bundle.

    :ivar data: a text, or plain data for JSON.
    :ivar content: the masked data.
    :ivar masked: the number of masked values.
    :ivar omitted: why the file is left out; empty if it is not.
    """

    path: str
    data: Any = None
    content: bytes = b""
    masked: int = 0
    omitted: str = ""


COLUMNS: tuple[Column[BundlePart], ...] = (
    Column("path", lambda part: part.path, "Path"),
    Column("size", lambda part: None if part.omitted else len(part.content), "Size"),
    Column("masked", lambda part: part.masked, "Masked"),
    Column("omitted", lambda part: part.omitted or None, "Left out", lambda part: part.omitted or " "),
)


def files(parts: Iterable[BundlePart], masking: Masking) -> list[BundlePart]:
    """Mask the parts, the most important first, and add the manifest."""
    collected = list(parts)
    masking.learn([[part.path, part.data, part.omitted] for part in collected])
    made: list[BundlePart] = []
    left = MOST - _MANIFEST
    for part in collected:
        before = masking.count
        path, omitted, data = masking.text(part.path), masking.text(part.omitted), masking.data(part.data)
        content = (data if isinstance(data, str) else json.dumps(data, indent=1)).encode()
        if len(content) + _FRAME > left and not omitted:
            omitted = f"larger than the rest of {MOST >> 20} MiB"
        content = b"" if omitted else content
        left -= len(content) + _FRAME
        masked = part.masked + masking.count - before
        made.append(replace(part, path=path, content=content, masked=masked, omitted=omitted))
    rows = [described(COLUMNS, part) | {"sha256": hashlib.sha256(part.content).hexdigest()} for part in made]
    manifest = {"gpustack_support_bundle": 1, "names": "kept" if masking.keep_names else "pseudonyms", "files": rows}
    return [*made, BundlePart(path="manifest.json", content=json.dumps(manifest, indent=1).encode())]


def write(path: Path, bundle: Sequence[BundlePart]) -> None:
    """Write the archive: mode 0600, complete or not at all, never over an existing file.

    :raises ApplyError: if it can't be written.
    """
    packed = io.BytesIO()
    top = path.name.removesuffix(".gz").removesuffix(".tar")
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
        for part in bundle:
            if not part.omitted:
                entry = tarfile.TarInfo(f"{top}/{part.path}")
                entry.size, entry.mode = len(part.content), 0o600
                archive.addfile(entry, io.BytesIO(part.content))
    with file_errors(ApplyError, "the bundle can't be written", path, state="nothing was written"):
        write_atomic(path, [packed.getvalue()], mode=0o600, new=True)


FAILURES, RECORDS = 10, 50
"""The newest failures of instances, and the newest runs of gpustack."""
_IMAGE = re.compile(r"hw_.*|trait:.*|img_(?:hide_)?hv_.*|os_(?:type|distro|version|secure_boot)|architecture")
"""The properties of images that Nova reads; the others are a tenant's own."""
_HINTS = re.compile("group|same_host|different_host|query|build_near_host_ip|cidr|target_cell|different_cell")
"""The scheduler hints of Nova's filters; a tenant can name others."""


@dataclass(frozen=True, kw_only=True)
class BundleContents:
    """What a bundle is about.

    :ivar cloud: connects; raises a CloudError.
    :ivar checks: the results of ``gpustack doctor``.
    :ivar configuration: files of any service, or their directories.
    :ivar instances: names or ids.
    """

    cloud: Callable[[], Connection]
    sources: WhySources
    checks: Callable[[], Sequence[Check]]
    configuration: Sequence[Path] = ()
    hosts: Sequence[str] = ()
    instances: Sequence[str] = ()
    findings: list[dict[str, Any]] = field(default_factory=list)


def parts(contents: BundleContents, masking: Masking) -> Iterator[BundlePart]:
    """The parts, the most important first; a part that can't be read is left out with its reason."""
    masking.name("user", user_name())
    installed = sorted((entry.name, entry.version) for entry in importlib.metadata.distributions() if entry.name)
    yield BundlePart(
        path="versions.json",
        data={"system": platform.platform(), "python": platform.python_version(), **dict(installed)},
    )
    yield _part("doctor.json", lambda: [check.to_dict() for check in contents.checks()])
    for number, name in enumerate(contents.hosts, start=1):
        yield _part(f"why/host-{number}.json", lambda name=name: _host(contents, name))  # type: ignore[misc]
    for number, name in enumerate(contents.instances, start=1):
        path = f"why/instance-{number}.json"
        yield _part(path, lambda name=name: _instance(contents, name, masking))  # type: ignore[misc]
    yield BundlePart(path="findings.json", data=contents.findings)
    yield _part("failures.json", lambda: _failures(contents.cloud(), masking))
    yield _of_file(contents.sources.spec, "spec.json", _spec, masking)
    for number, file in enumerate(_paths(contents.configuration), start=1):
        yield _of_file(file, f"configuration/{number}-{file.name}", _configuration, masking)
    yield from starmap(_record, islice(journal.records(), RECORDS))
    facts_of_hosts = _part("facts", lambda: contents.sources.facts)
    yield from [facts_of_hosts] if facts_of_hosts.omitted else []
    for number, entry in enumerate(facts_of_hosts.data or (), start=1):
        if not contents.hosts or entry.hostname in contents.hosts:
            facts = {"gpustack_snapshot": 1, "hosts": [entry.model_dump(mode="json", by_alias=True)]}
            yield BundlePart(path=f"facts/{number}.json", data=facts)


def of_nova(configuration: Sequence[Path]) -> Iterator[Path]:
    """The paths of which a source can be made; the others are only in the bundle, or named there."""
    for given in configuration:
        with contextlib.suppress(GpustackError):
            device_specs([given])
            scheduler([given])
            yield given


def _part(path: str, read: Callable[[], Any], masked: Callable[[], int] = int) -> BundlePart:
    """The part that is read, or why it is left out."""
    try:
        return BundlePart(path=path, data=read(), masked=masked())
    except OSError as error:
        return BundlePart(path=path, omitted=error.strerror or str(error))
    except UnicodeDecodeError:
        return BundlePart(path=path, omitted="not UTF-8")
    except GpustackError as error:
        return BundlePart(path=path, omitted=f"{error.where}: {error.what}" if error.where else error.what)


def _host(contents: BundleContents, name: str) -> dict[str, Any]:
    found = host.answer(contents.cloud(), name, contents.sources)
    contents.findings.extend(entry.to_dict() for entry in found.findings)
    gpus = [described(HOST_COLUMNS, gpu) for gpu in found.gpus]
    return {"host": name, "summary": found.summary, "gpus": gpus, "gaps": found.gaps}


def _instance(contents: BundleContents, name: str, masking: Masking) -> dict[str, Any]:
    found = instance.answer(contents.cloud(), name, contents.sources)
    contents.findings.extend(entry.to_dict() for entry in found.findings)
    return {**found.to_dict(), "name": _learned(found.boot, masking), "gaps": found.gaps}


def _learned(known: BootRecord, masking: Masking) -> str:
    """The pseudonym of an instance."""
    masking.name("project", known.server.project)
    masking.name("user", known.server.user)
    return masking.name("instance", known.server.name)


def _failures(cloud: Connection, masking: Masking) -> list[dict[str, Any]]:
    """The requests, faults and events of the instances that failed last."""
    if access := sign_in(cloud):
        masking.name("user", access.user)
        masking.name("project", access.project)
    found = []
    for known in filter(None, (boot(cloud, uuid) for uuid in servers.failed(cloud, FAILURES))):
        events = servers.actions(cloud, known.server.id)
        failing = next((event.request for event in events if event.failed and event.request), "")
        steps = servers.steps_of(cloud, known.server.id, failing) if failing else []
        properties = known.image or {}
        found.append(
            {
                "instance": known.server.id,
                "name": _learned(known, masking),
                "project": known.server.project,
                "host": known.server.host or None,
                "flavor": {"name": known.flavor.name, **asdict(known.flavor.sizes), **known.flavor.extra_specs},
                "image": {key: value if _IMAGE.fullmatch(key) else MASK for key, value in properties.items()},
                "zone": known.zone,
                "hints": [name if _HINTS.fullmatch(name) else MASK for name in known.hints or ()],
                "fault": known.fault,
                "failed_at": f"{known.failed:%FT%TZ}" if known.failed else None,
                "events": [event.to_dict() | {"request": event.request or None} for event in events],
                "steps": [asdict(step) for step in steps],
            }
        )
    return found


def _paths(configuration: Sequence[Path]) -> Iterator[Path]:
    """The files of a service's configuration, as it finds them in a directory."""
    for given in configuration:
        try:
            yield from files_of(given) if given.is_dir() and not given.is_symlink() else (given,)
        except GpustackError:
            yield given  # the reader has the reason


def _of_file(path: Path, name: str, made: Callable[[Path, str, Masking], Any], masking: Masking) -> BundlePart:
    """The part that is made of a file, if that is no link; its error can quote the file, so its reason is left out."""
    if path.is_symlink() or not path.is_file():
        return BundlePart(path=name, omitted="a symbolic link" if path.is_symlink() else "there is no such file")

    def read() -> Any:  # noqa: ANN401 - plain data
        text = read_text(path, follow=False)
        try:
            return made(path, text, masking)
        except GpustackError as error:
            raise GpustackError("not understood") from error

    before = masking.count
    return _part(name, read, lambda: masking.count - before)


def _spec(path: Path, text: str, _masking: Masking) -> Any:  # noqa: ANN401 - plain data
    """A spec without its comments; one that is invalid may hold anything."""
    parse_spec(text, str(path))
    return document.read(text).data


def _configuration(path: Path, text: str, masking: Masking) -> Any:  # noqa: ANN401 - plain data
    """A configuration without comments. Of YAML, only options of Nova keep their values."""
    if path.suffix in (".yaml", ".yml", ".json"):
        read = document.read(text)
        if read.problems:
            raise GpustackError("no YAML")
        return _public(read.data, "", "", masking)
    lines = []
    for group, settings in groupby(parse_files({str(path): text}).settings, lambda setting: setting.group):
        lines.append(f"[{group}]")
        for setting in settings:
            value = masking.option(setting.path, setting.written).replace("\n", "\n    ")
            lines.append(f"{setting.name} = {value}")
    return "\n".join([*lines, ""])


def _public(data: Any, group: str, name: str, masking: Masking) -> Any:  # noqa: ANN401 - plain data
    if isinstance(data, dict):
        return {str(key): _public(value, name, str(key), masking) for key, value in data.items()}
    if isinstance(data, list):
        return [_public(value, group, name, masking) for value in data]
    return data if data is None or isinstance(data, bool) else masking.option(f"{group}/{name}", str(data))


def _record(path: Path, record: journal.RunRecord | JournalError) -> BundlePart:
    name = f"records/{path.stem}.json"
    if path.is_symlink() or isinstance(record, JournalError):
        return BundlePart(path=name, omitted="a symbolic link" if path.is_symlink() else "no journal of gpustack")
    ends = {key: end.model_dump(mode="json") for key, end in record.ends.items()}
    return BundlePart(path=name, data=record.head.model_dump(mode="json") | {"state": record.state, "ends": ends})
