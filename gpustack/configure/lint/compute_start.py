"""Values that nova-compute judges itself when it starts: processors, huge pages, mediated devices, contradictions."""

import re
from collections.abc import Generator, Iterator, Sequence
from itertools import chain
from typing import Any

from gpustack.base.findings import Code, Finding, finding
from gpustack.configure.lint.subject import DeviceLine, LintSubject, check
from gpustack.configure.sources import Source, values
from gpustack.configure.vgpus import faults, left_out, unsupported
from gpustack.hosts.facts.model import Host
from gpustack.nova_options import releases, tables
from gpustack.nova_options.config import Setting
from gpustack.nova_options.cpu_sets import CpuSpecError, cpus
from gpustack.nova_options.mediated import STANDARD, At, TypeSection, card_types, group_of, is_address, list_option
from gpustack.spec.vgpu_use import has_vgpus, offered_vgpus, types_in_use

_TITLE = "Start of nova-compute"
_PIN = releases.option("DEFAULT/vcpu_pin_set")
_RESERVED = releases.option("DEFAULT/reserved_host_cpus")
_PAGES = releases.option("DEFAULT/reserved_huge_pages")
_SETS = (releases.option("compute/cpu_shared_set"), releases.option("compute/cpu_dedicated_set"))
_SIZE = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([kKMGTPEZYRQ]i?)?(b|bit|B)?")
_TRAIN, _VICTORIA = 20, 22


@check(_TITLE)
def processors(subject: LintSubject) -> Iterator[Finding]:
    """Lists of processors that Nova refuses, by themselves or together."""
    for source in subject.serving("compute") if subject.release.major >= _TRAIN else ():
        sets: list[tuple[Setting, set[int]]] = []
        pin = subject.last(source, _PIN)
        for option in (_PIN, *_SETS):
            setting = subject.last(source, option)
            if setting is None or setting.unknown or not setting.value:
                continue
            try:
                parsed = cpus(setting.value)
            except CpuSpecError as error:
                yield _refused(setting, str(error))
                continue
            if not parsed:
                yield _refused(setting, "no processor remains")
            elif option is not _PIN:
                sets.append((setting, parsed))
        if len(sets) > 1 and sets[0][1] & sets[1][1]:
            yield _refused(sets[1][0], f"it shares processors with [compute] {sets[0][0].name}")
        if pin and pin.value and any(setting.name == "cpu_dedicated_set" for setting, _ in sets):
            yield _refused(pin, "it excludes [compute] cpu_dedicated_set")
        reserved = subject.last(source, _RESERVED)
        if sets and not (pin and pin.value) and reserved and reserved.value.strip().isdecimal() and int(reserved.value):
            yield _refused(reserved, f"it excludes [compute] {sets[0][0].name}")


@check(_TITLE)
def contradictions(subject: LintSubject) -> Iterator[Finding]:
    """Values that are refused by themselves or beside others, although their types accept them."""
    known = [e for e in tables.facts()["contradiction"] if e["since"] <= subject.release.major <= e.get("until", 99)]
    named = [(entry, releases.option(entry["set"])) for entry in known]
    for source in subject.serving("compute"):
        configured = {setting.path for setting in source.configuration.settings}
        for entry, option in named:
            unset = configured.isdisjoint((option.path, *option.old_names))
            if not unset and (setting := subject.last(source, option)) is not None:
                patterns = {**entry["when"], **entry.get("unless", {})}
                given = {path: _given(subject, source, path) for path in patterns}
                matching = [path for path in patterns if re.fullmatch(patterns[path], given[path] or "")]
                if matching == [*entry["when"]] and None not in given.values():
                    yield _refused(setting, entry["reason"])


def _given(subject: LintSubject, source: Source, path: str) -> str | None:
    """The value of an option, or its default; None if it is not known."""
    option = subject.table(source).named[path]
    setting = subject.last(source, option)
    if setting is not None and (setting.unknown or setting.is_template):
        return None
    value = option.default if setting is None else setting.value.strip()
    return str(str(value).lower() in releases.TRUE).lower() if option.kind == "bool" else str(value or "")


@check(_TITLE)
def huge_pages(subject: LintSubject) -> Iterator[Finding]:
    """Lines of reserved_huge_pages without node, size and count."""
    for source in subject.serving("compute"):
        for setting in source.configuration.effective(_PAGES.of(subject.release)):
            if setting.unknown or _PAGES.type.fault(setting.value):
                continue
            parser = _PAGES.type.parser
            entry = parser(setting.value) if parser else {}
            missing = [key for key in ("node", "size", "count") if key not in entry]
            numbers = [key for key in ("node", "count") if key in entry and not _is_integer(entry[key])]
            size = entry.get("size", "")
            if missing or numbers or not (_is_integer(size) or _SIZE.fullmatch(size)):
                yield _refused(setting, "it must be node:NUMBER,size:SIZE,count:NUMBER")


def _is_integer(text: str) -> bool:
    return re.fullmatch(r"\s*[-+]?\d+(_\d+)*\s*", text) is not None


@check(_TITLE)
def mediated(subject: LintSubject) -> Iterator[Finding]:
    """Types of mediated devices: refused addresses, types and sections without effect, cards without their type."""
    of_hosts: dict[str, list[list[Finding]]] = {}
    for source in subject.serving("compute") if subject.release.major >= _VICTORIA else ():
        setting, hosts = subject.last(source, list_option(subject.release)), subject.hosts_of(source)
        known = None
        if setting is None or not setting.unknown:
            known = yield from _types(subject, source, setting, values(setting.value) if setting else ())
        for host in hosts if subject.spec is not None and has_vgpus(subject.spec) else ():
            found = [] if known is None else list(_of_host(subject, host, known))
            if len(hosts) == 1 or not found:
                of_hosts.setdefault(host.hostname, []).append(found)
    for several in of_hosts.values():  # a host may have any of them
        yield from min(several, key=len)


def _of_host(subject: LintSubject, host: Host, known: Sequence[TypeSection]) -> Iterator[Finding]:
    if subject.spec is None:
        return iter(())
    read, cards = card_types(known, subject.release), offered_vgpus(subject.spec, host)
    in_use = types_in_use(subject.spec, host, lambda address: read.of(address)[0])
    return chain(faults(host, cards, read, subject.release), in_use)


def _types(
    subject: LintSubject, source: Source, listing: Setting | None, types: Sequence[str]
) -> Generator[Finding, None, list[TypeSection] | None]:
    """The findings about types, and their sections; None if they depend on another option."""
    lines: dict[tuple[str, At], Setting | None] = {}
    sections = []
    for type_ in types:
        addresses, line = _addresses(subject, source, type_)
        if addresses is None:
            return None
        class_, limit = (_of_section(subject, source, type_, name) for name in ("mdev_class", "max_instances"))
        most = int(limit.value) if limit and limit.value.isdecimal() else None
        of_type = class_.value if class_ else STANDARD
        sections.append(TypeSection(type=type_, addresses=addresses, resource_class=of_type, limit=most))
        lines[type_, "max_instances"] = limit
        groups = [f"{prefix}_{type_.lower()}" for prefix in ("mdev", "vgpu")]
        lines[type_, "list"], lines[type_, "device_addresses"], lines[type_, "mdev_class"] = listing, line, class_
        lines[type_, "section"] = next((s for s in source.configuration.settings if s.group in groups), None)
        for address in addresses:
            if line and is_address(address) and address != address.lower():
                yield finding(Code.CAPITAL_IN_ADDRESS, place=line.place, value=address)
    read = card_types(sections, subject.release)
    hosts = subject.hosts_of(source)
    for problem in (*read.problems, *unsupported(hosts, read), *left_out(hosts, sections, read)):
        line = lines[problem.type, problem.at]
        if line and problem.refused:
            yield _refused(line, problem.what)
        elif line:
            yield finding(Code.MEDIATED_VALUE_IGNORED, place=line.place, what=problem.what)
    return sections


@check(_TITLE)
def provider_files(subject: LintSubject) -> Iterator[Finding]:
    """Files of provider_config that Nova refuses."""
    for provided in subject.provided.values():
        for place, error in provided.faults if provided else ():
            yield finding(Code.PROVIDER_FILE_REFUSED, place=place, error=error)


@check(_TITLE)
def offered_twice(subject: LintSubject) -> Iterator[Finding]:
    """Cards of mediated devices that a device_spec matches too."""
    for source in subject.serving("compute"):
        setting = subject.last(source, list_option(subject.release))
        for type_ in values(setting.value) if setting and not setting.unknown else ():
            addresses, line = _addresses(subject, source, type_)
            for address in addresses or ():
                by = next((entry for entry in subject.devices_of(source) if _matches(subject, entry, address)), None)
                if by and line:
                    yield finding(Code.CARD_OFFERED_TWICE, place=by.place, address=address, other=line.place)


def _matches(subject: LintSubject, entry: DeviceLine, address: str) -> bool:
    """Whether an entry matches the device at an address; without facts, only by its address."""
    spec = entry.spec
    if spec is None or not is_address(address):
        return False
    if functions := [(host.functions.get(address), host) for host in subject.hosts_of(entry.source)]:
        return any(function and spec.matches(function, host) for function, host in functions)
    return spec.address.fits(address) and not (spec.address.is_everything or spec.devname)


def _addresses(subject: LintSubject, source: Source, type_: str) -> tuple[tuple[str, ...] | None, Setting | None]:
    """The addresses of a type and their line; None if the value depends on another option."""
    if (setting := _of_section(subject, source, type_, "device_addresses")) is None:
        return (), None
    return (None if setting.unknown else values(setting.value)), setting


def _of_section(subject: LintSubject, source: Source, type_: str, name: str) -> Setting | None:
    option = subject.table(source).find(group_of(type_.lower(), subject.release), name)
    return subject.last(source, option) if option else None


def _refused(setting: Setting, reason: str) -> Finding:
    about: dict[str, Any] = {"group": setting.group, "name": setting.name, "value": repr(setting.value)}
    return finding(Code.COMPUTE_VALUE_REFUSED, place=setting.place, **about, reason=reason)
