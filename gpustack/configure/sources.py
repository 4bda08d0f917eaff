"""Configurations named on a command line, and the existing configuration of a deployment.

``PATH`` or ``SERVICE[,SERVICE…]=PATH[:PATH…]``: each argument is the configuration of one host's service or services: a
file, several files in the order in which the service reads them, or a directory. A directory of files named after
services holds one configuration for each service. Without ``SERVICE=``, the service is derived from the name
(``nova-compute.conf``, ``nova_scheduler/``, ``placement.conf``); a plain ``nova.conf`` belongs to all services of Nova.

A rendering carries over lines of the existing configuration, among them scheduler filters that keep no service from
starting. Lines that gpustack wrote are ignored, so that a second rendering gives the same result.
"""

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from gpustack.base.by_key import by_key
from gpustack.base.errors import NothingThereError, NovaConfigError, UsageError
from gpustack.base.findings import Code, Finding, finding
from gpustack.base.hostnames import key, short
from gpustack.configure.desired import PCI_FILTER, DesiredConfig
from gpustack.configure.installed.launch import DEVSTACK, other_cells
from gpustack.configure.packing import Advised
from gpustack.configure.sections import Carried, with_filters
from gpustack.hosts.facts.model import Host
from gpustack.nova_options import releases
from gpustack.nova_options.config import NovaConfiguration, Setting, files_of, foreign, parse_files, read_files
from gpustack.nova_options.device_spec import DeviceSpec, offered, parse_line
from gpustack.nova_options.filters import Fault, FilterFault, available, faults
from gpustack.nova_options.markers import CONTROL, DROP_IN
from gpustack.nova_options.options import Option, Project, Release
from gpustack.nova_options.pci_values import EntryError, alias_of

SERVICES = ("api", "compute", "scheduler", "conductor")
PLACEMENT = "placement"
"""The service Placement, which reads a configuration of its own."""
_RENDERED_PLACEMENT = "*/etc/placement/placement.conf.d"
SUPER_CONDUCTOR = "super-conductor"
"""The conductor above the cells; it reads the options of nova-conductor from files of its own."""
READERS = (*SERVICES, SUPER_CONDUCTOR)
_NAMES = {"cpu": "compute", "libvirt": "compute", "cell-conductor": "conductor", "api-wsgi": "api"}
_PREFIXES = ("nova", PLACEMENT, DROP_IN)
OTHER_SERVICES: tuple[str, ...] = ("nova-novncproxy", "nova-serialproxy", "nova-spicehtml5proxy", "nova-metadata")
OTHER_SERVICES += ("nova-compute-ironic", "nova-compute-fake", "nova-libvirt", "nova-ssh")
OTHER_SERVICES += ("nova-api-bootstrap", "nova-cell-bootstrap")


@dataclass(frozen=True, kw_only=True)
class Source:
    """The configuration of one host's service, or of several services that read the same files.

    :ivar label: its name on the command line, for messages.
    :ivar named: whether the services are certain: given as ``SERVICE=``, or derived from the file names.
    :ivar with_files: whether the service is started with ``--config-file``; None when unknown.
    :ivar hosts: the only hosts that have this configuration; None where its path decides.
    :ivar but: hosts that do not have this configuration because they have one of their own.
    :ivar readers: the services by name, where the two conductors have different configurations.
    :ivar filters: filters that the deployment tool enables where this configuration has no list.
    """

    label: str
    services: tuple[str, ...]
    configuration: NovaConfiguration
    named: bool
    with_files: bool | None = None
    hosts: tuple[str, ...] | None = None
    but: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    filters: frozenset[str] = frozenset()

    def place(self, setting: Setting | None) -> str:
        """The place of a setting; that of the configuration if it lacks the setting."""
        return setting.place if setting else self.label

    def serves(self, option: Option) -> bool:
        """Whether a service of this configuration reads the option."""
        if not option.services:
            return self.project == "nova"
        return any(service in option.services for service in self.services)

    @property
    def is_rendered(self) -> bool:
        """Whether gpustack wrote all of its settings: those of the operator are elsewhere."""
        settings, names = self.configuration.settings, {PurePath(file).name for file in self.configuration.files}
        return all(setting.ours for setting in settings) and (bool(settings) or names == {DROP_IN})

    @property
    def project(self) -> Project:
        """Whose configuration it is."""
        return "placement" if self.services == (PLACEMENT,) else "nova"


class HostNames:
    """Hosts by their names in full and in short form."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self._hosts = hosts
        self._in_full = by_key((host.hostname, number) for number, host in enumerate(hosts))
        self._in_short = by_key((short(host.hostname), number) for number, host in enumerate(hosts))

    def having(self, source: Source) -> list[Host]:
        """The hosts that may have a configuration: those named in its path (in full or short form), else all."""
        if source.hosts is not None:
            return self._chosen(self._in_full, source.hosts)
        but = frozenset(source.but)
        parts = {part for path in source.configuration.files for part in PurePath(path).parts}
        for names, named in ((self._in_full, parts), (self._in_short, set(map(key, parts)))):
            if possible := [host for host in self._chosen(names, named) if host.hostname not in but]:
                return possible
        return [host for host in self._hosts if host.hostname not in but]

    def _chosen(self, names: Mapping[str, list[int]], named: Iterable[str]) -> list[Host]:
        return [self._hosts[number] for number in sorted({n for name in named for n in names.get(name, ())})]


def assigned(options: Iterable[tuple[Path, str, str, str, str]]) -> NovaConfiguration:
    """The configuration that a deployment tool makes of its YAML files.

    :param options: file, group, name, value, and the path of the value in the file. Names that a tool can't write
        into nova.conf are left out.
    :raises NovaConfigError: when a file sets too much.
    """
    texts: dict[str, list[str]] = {}
    keys: dict[str, list[str]] = {}
    for path, group, name, value, place in options:
        if re.fullmatch(r"[\w.-]+", group) and re.fullmatch(r"[\w.-]+", name):
            value = "{{ … }}" if re.search("{[%#]", value) else value
            lines = [f"[{group}]", *f"{name} = {value}".rstrip("\n").split("\n")]
            texts.setdefault(str(path), []).extend(lines)
            keys.setdefault(str(path), []).extend([place] * len(lines))
    try:
        made = parse_files({file: "\n".join(lines) for file, lines in texts.items()})
    except NovaConfigError as error:
        file, _, line = (error.where or "").rpartition(":")
        where = f"{file}:{keys[file][int(line) - 1]}" if file in keys else error.where
        raise NovaConfigError(error.what, where=where, remedy=error.remedy) from error
    return replace(made, settings=tuple(replace(s, key=keys[s.file][s.line - 1]) for s in made.settings))


def read_sources(arguments: Sequence[str]) -> tuple[Source, ...]:
    """Read the configurations of a command line.

    :raises UsageError: when an argument has an unknown service or no path.
    :raises NovaConfigError: when a file can't be read or is no INI file.
    """
    return tuple(source for argument in arguments for source in _sources(argument))


def kinds(readers: Iterable[str]) -> tuple[str, ...]:
    """The services whose options these services read."""
    return tuple(dict.fromkeys("conductor" if reader == SUPER_CONDUCTOR else reader for reader in readers))


def split(argument: str) -> tuple[tuple[str, ...], str]:
    """The services and the paths of one argument.

    :raises UsageError: when there is an unknown service before ``=``, or nothing after it.
    """
    names, separator, paths = argument.partition("=")
    if not separator or "/" in names:
        return (), argument
    services = tuple(names.split(","))
    unknown = [service for service in services if service not in (*READERS, PLACEMENT)]
    if unknown or not paths:
        remedy = f"write PATH or SERVICE=PATH; the services are {', '.join((*READERS, PLACEMENT))}"
        raise UsageError(f"{argument!r} does not name a configuration", remedy=remedy)
    return services, paths


def guessed(path: Path) -> tuple[str, ...]:
    """The service in the name of a file or directory, or of its parents; empty for ``nova.conf`` and ``nova``.

    TripleO's files of nova-compute are in ``nova_libvirt/etc/nova``.
    """
    for name in (path.name, *(parent.name for parent in path.parents[:3])):
        if (service := _service(name)) and (service, path.name) != (PLACEMENT, "nova.conf"):
            return (service,)
    return ()


def _service(name: str) -> str | None:
    """The service in a name such as ``nova-compute.conf``, ``nova_api`` or ``nova-cpu.conf.d``."""
    stem = name.removesuffix(".d").removesuffix(".conf").replace("_", "-")
    if stem in (PLACEMENT, "placement-api"):
        return PLACEMENT
    service = stem.removeprefix("nova-")
    service = _NAMES.get(service, service)
    return service if stem.startswith("nova-") and service in READERS else None


def _sources(argument: str) -> list[Source]:
    services, text = split(argument)
    if not (paths := [Path(part) for part in text.split(":") if part]):
        raise UsageError(f"{argument!r} names no path", remedy="write PATH or SERVICE=PATH")
    try:
        return _read(text, services, paths)
    except NothingThereError:
        sources: list[Source] = []
        for path in paths if len(paths) == 1 else ():
            found = [(directory, services or _rendered_for(path, directory)) for directory in _of_hosts(path)]
            found += [(directory, (PLACEMENT,)) for directory in sorted(path.glob(_RENDERED_PLACEMENT))]
            for directory, of_directory in found:
                with contextlib.suppress(NothingThereError):
                    sources += _read(str(directory), of_directory, [directory])
        if not sources:
            raise
        return sources


def _read(text: str, services: tuple[str, ...], paths: Sequence[Path]) -> list[Source]:
    services = services or guessed(paths[-1])
    of_services = ((tuple(file for p in paths for file in _read_by(name, p)), name) for name in services or READERS)
    if not (by_files := by_key((files, service) for files, service in of_services if files)):
        problem = f"no file there is for {' or '.join(f'nova-{service}' for service in services or SERVICES)}"
        raise NothingThereError(problem, where=text, remedy="name the service's own files")
    if "conductor" in (services or READERS) and len(paths) == 1:
        by_files |= {(Path(file),): ["conductor"] for file in other_cells(str(paths[0]))}
    return [
        Source(
            label=text,
            services=kinds(serving),
            readers=tuple(serving),
            configuration=read_files(files),
            named=bool(services) or all(_service(file.name) for file in files),
        )
        for files, serving in by_files.items()
    ]


def _of_hosts(path: Path) -> list[Path]:
    """The directories of single hosts in a directory, as in kolla-ansible's overrides and gpustack's output.

    In a directory such as /etc/kolla, those of Nova and Placement, without services that need no GPU options.
    """
    found: list[Path] = []
    for directory in sorted(path.iterdir()) if path.is_dir() else ():
        inner = (directory, directory / "etc/nova", directory / "etc/nova/nova.conf.d")
        if directory.is_dir() and not directory.name.endswith(".d") and not directory.name.startswith(OTHER_SERVICES):
            found += [candidate for candidate in inner if any(candidate.glob("*.conf"))][:1]
    return [d for d in found if any(f.name.startswith(_PREFIXES) for f in (d, *d.glob("*.conf")))] or found


def _rendered_for(tree: Path, directory: Path) -> tuple[str, ...]:
    """The services for which ``gpustack nova render`` wrote a directory of its output tree; empty for other trees."""
    control = tree / CONTROL / directory.relative_to(tree / directory.relative_to(tree).parts[0])
    if not all((path / DROP_IN).is_file() for path in (control, directory)):
        return ()
    return tuple(service for service in SERVICES if (service != "compute") == (directory == control))


def _read_by(service: str, path: Path) -> tuple[Path, ...]:
    """The files of a path that a service reads.

    In a directory of files named after services (kolla-ansible's overrides), each service reads its own file. In a
    ``nova.conf.d``, a service reads all files. DevStack starts some services with a file of their own alone.
    """
    if (own := path / DEVSTACK.get(service, "")).is_file():
        return (own,)
    files = files_of(path, service=service)
    if not path.is_dir() or path.name.endswith(".d"):
        return files
    return tuple(file for file in files if _service(file.name) in (None, service))


ALIAS = releases.option("pci/alias")


@dataclass(frozen=True, kw_only=True)
class Existing:
    """The existing configurations, without gpustack's own lines.

    :ivar named: configurations named on the command line.
    :ivar inspected: configurations found where the rendered files go.
    :ivar joined: directories whose files are merged with rendered files of the same name (kayobe's environments).
    :ivar documents: named YAML resources or values, for deployment tools that merge their files with these.
    :ivar findings: configurations that could not be read.
    :ivar mode: the permission bits of new files: those that all files of ``documents`` have.
    """

    named: tuple[Source, ...] = ()
    inspected: tuple[Source, ...] = ()
    joined: tuple[Path, ...] = ()
    documents: tuple[Mapping[str, Any], ...] = ()
    findings: tuple[Finding, ...] = ()
    mode: int = 0o644

    @property
    def sources(self) -> tuple[Source, ...]:
        """All configurations, the named ones first."""
        return (*self.named, *self.inspected)

    def effective(self, option: Option) -> Iterator[tuple[Source, Setting]]:
        """The effective assignments of an option in every configuration whose services read it."""
        reported = set()
        for source in self.sources:
            if source.serves(option):
                settings = source.configuration.effective(option)
                for setting in settings if source in self.inspected else foreign(settings):
                    if (setting.place, source.services, source.hosts) not in reported:
                        reported.add((setting.place, source.services, source.hosts))
                        yield source, setting

    def retained(self, advice: Advised) -> Setting | None:
        """The operator's setting of an option, if its value is not the advised one: gpustack keeps it.

        A setting with the advised value is rendered again: merged files contain the rendered lines without their
        markers.
        """
        for source in self.sources:
            settings = list(foreign(source.configuration.all(advice.option))) if source.serves(advice.option) else []
            if settings and not advice.means(settings[-1].value):
                return settings[-1]
        return None


def carried(
    existing: Existing,
    wanted: DesiredConfig,
    service: str,
    host: Host | None = None,
    hosts: Sequence[Host] = (),
    *,
    into: Path | None = None,
) -> Carried:
    """The existing lines of options that the deployment tool replaces as a whole, without those that gpustack renders.

    :param host: for device_spec: an entry that matches only the host's prepared GPUs is replaced by the rendered one.
    :param hosts: all hosts, to find the host of each configuration.
    :param into: the file that the rendered lines go into. Its existing lines stay in force and are not repeated.
    """
    names = {alias.name for alias in wanted.aliases}
    aliases, devices = [], []
    spec_option = releases.device_spec_option(wanted.release)
    targets = _joined_with(into, existing.joined)
    names_of_hosts = HostNames(hosts)
    for source in existing.sources:
        of_others = source.hosts is not None if host is None else host not in names_of_hosts.having(source)
        if service not in source.services or of_others:
            continue
        configuration = source.configuration
        aliases += [
            _one_line(setting.written)
            for setting in foreign(configuration.effective(ALIAS))
            if setting.path == ALIAS.path and _alias_name(setting) not in names and not _is(setting, targets)
        ]
        if host is not None:
            own_devices = rendered_devices(wanted, host)
            for setting in foreign(configuration.effective(spec_option)):
                if setting.path == spec_option.path and not _is(setting, targets) and not is_faulty(setting):
                    reach = frozenset() if setting.is_template else offered(parse_line(setting.value), host)
                    if not reach or not reach <= own_devices:
                        devices.append(_one_line(setting.written))
    return Carried(aliases=tuple(dict.fromkeys(aliases)), devices=tuple(dict.fromkeys(devices)))


def _joined_with(into: Path | None, joined: Sequence[Path]) -> frozenset[Path]:
    """The target file, and the files of the same name that the deployment tool merges with it."""
    if into is None:
        return frozenset()
    of_host = into.parent.name if into.name == "nova.conf" else ""
    return frozenset((into.resolve(), *((directory / of_host / into.name).resolve() for directory in joined)))


def _is(setting: Setting, files: Collection[Path]) -> bool:
    return Path(setting.file).resolve() in files


def is_faulty(setting: Setting) -> bool:
    """Whether Nova refuses a value. The value of a template is unknown, so it is never faulty."""
    if setting.is_template:
        return False
    try:
        alias_of(setting.value) if setting.path in (ALIAS.path, *ALIAS.old_names) else parse_line(setting.value)
    except EntryError:
        return True
    return False


def rendered_devices(wanted: DesiredConfig, host: Host) -> frozenset[str]:
    """The addresses that the rendered device_spec offers on a host."""
    return offered([DeviceSpec.parse(e.to_dict()) for e in wanted.computes.get(host.hostname, ())], host)


def _alias_name(setting: Setting) -> str | None:
    try:
        return str(alias_of(setting.value).get("name", "")).strip()
    except EntryError:
        return None


def _one_line(text: str) -> str:
    return " ".join(part.strip() for part in text.splitlines())


FILTERS = releases.option("filter_scheduler/enabled_filters")
AVAILABLE = releases.option("filter_scheduler/available_filters")


def values(text: str) -> tuple[str, ...]:
    """The entries of a list option as oslo.config reads them (``oslo_config.types.List``).

    Only commas at the end are ignored. A line break in an entry becomes a blank: Nova has no such filter either way,
    but a rendered file stays an INI file. A Jinja expression is one entry, since it may contain commas.
    """
    if "{{" in text:
        return (text.strip(),)
    stripped = text.strip().rstrip(",")
    return tuple(" ".join(part.split()) for part in stripped.split(",")) if stripped else ()


def filters(existing: Existing, wanted: DesiredConfig) -> tuple[tuple[str, ...], Setting | None]:
    """The scheduler's complete filter list and the line it is carried over from (None: the release's default).

    Filters that the release no longer has are left out: nova-scheduler does not start with them.
    """
    option = FILTERS.of(wanted.release)
    for source in existing.sources:
        # The last file decides a list option, so gpustack's own file must not hide the list of another file.
        assignments = list(foreign(source.configuration.all(option))) if source.serves(option) else []
        if assignments and source.hosts is None:
            return kept(source, assignments[-1], wanted), assignments[-1]
    return with_filters(releases.default_filters(wanted.release), wanted.filters), None


def filter_findings(
    existing: Existing, wanted: DesiredConfig, setting: Setting, known: Collection[str] = ()
) -> Iterator[Finding]:
    """Report carried-over filters with which nova-scheduler does not start.

    :param known: filters that the deployment tool itself makes available.
    """
    source = next(source for source in existing.sources if setting in source.configuration.settings)
    for fault in _filter_faults(source, setting, wanted):
        removed = fault.fault is Fault.GONE
        if removed or fault.name not in ("", *known, *wanted.filters):
            code = Code.FILTER_DROPPED if removed else Code.FILTER_CARRIED_OVER
            yield finding(code, place=setting.place, filter=fault.name, release=wanted.release, hint=fault.hint)


def kept(source: Source, setting: Setting, wanted: DesiredConfig) -> tuple[str, ...]:
    """The filters of a line without empty entries and those that the release lost, and with the required ones added."""
    removed = {f.name for f in _filter_faults(source, setting, wanted) if f.fault is Fault.GONE}
    return with_filters([name for name in values(setting.value) if name and name not in removed], wanted.filters)


def _filter_faults(source: Source, setting: Setting, wanted: DesiredConfig) -> Iterator[FilterFault]:
    lines = source.configuration.effective(AVAILABLE.of(wanted.release))
    if any(line.unknown for line in (setting, *lines)):
        return iter(())
    return faults(values(setting.value), [line.value for line in lines], wanted.release)


def makes_available(lines: Sequence[str], release: Release) -> bool:
    """Whether lines of available_filters make PciPassthroughFilter available, or may do so."""
    names = available(lines, release)
    return names is None or PCI_FILTER in names
