"""Checks of nova-compute: what it judges itself when it starts, and what the spec's flavors need of it.

For the latter, only the configurations of hosts with GPUs are checked. An option that no file sets is judged only if
nova.conf itself is among the files: a drop-in alone leaves it open.
"""

import contextlib
import re
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.base.text import listed
from gpustack.configure.lint.subject import DeviceLine, InstanceShape, LintSubject, check
from gpustack.configure.packing import number
from gpustack.configure.sources import Source, values
from gpustack.configure.vgpus import faults, left_out, unsupported
from gpustack.hosts.facts.model import Host
from gpustack.nova_options import cpu_sets, releases, tables
from gpustack.nova_options.config import Setting
from gpustack.nova_options.mediated import STANDARD, At, TypeSection, card_types, group_of, is_address, list_option
from gpustack.nova_options.options import TRUE, Option, Release
from gpustack.spec.memory_pages import fit, matching, needs_huge_pages, size_kib
from gpustack.spec.model import Spec
from gpustack.spec.vgpu_use import has_vgpus, offered_vgpus, types_in_use

_START, _TITLE = "Start of nova-compute", "Resources of GPU hosts"

DEDICATED = releases.option("compute/cpu_dedicated_set")
SHARED = releases.option("compute/cpu_shared_set")
PIN = releases.option("DEFAULT/vcpu_pin_set")
_RESERVED = releases.option("DEFAULT/reserved_host_cpus")
RATIO = releases.option("DEFAULT/ram_allocation_ratio")
INITIAL_RATIO = releases.option("DEFAULT/initial_ram_allocation_ratio")
PAGES = releases.option("DEFAULT/reserved_huge_pages")
MACHINE = releases.option("libvirt/hw_machine_type")
SWTPM = releases.option("libvirt/swtpm_enabled")
PORTS = releases.option("libvirt/num_pcie_ports")
_TRAIN, _VICTORIA, _YOGA = 20, 22, 25
_OVERCOMMIT = 1.5
"""The default of the ratio up to Yoga (nova/conf/compute.py)."""
_OWN_PORTS = 6
"""PCIe ports of an instance for its disk, network port, USB controller, RNG, balloon and serial port."""
_SIZE = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([kKMGTPEZYRQ]i?)?(b|bit|B)?")


@check(_START)
def processor_lists(subject: LintSubject) -> Iterator[Finding]:
    """Lists of processors that Nova refuses, by themselves or together."""
    for source in subject.serving("compute") if subject.release.major >= _TRAIN else ():
        sets: list[tuple[Setting, set[int]]] = []
        pin = subject.last(source, PIN)
        for option in (PIN, SHARED, DEDICATED):
            setting = subject.last(source, option)
            if setting is None or setting.unknown or not setting.value:
                continue
            try:
                parsed = cpu_sets.cpus(setting.value)
            except cpu_sets.CpuSpecError as error:
                yield _refused(setting, str(error))
                continue
            if not parsed:
                yield _refused(setting, "no processor remains")
            elif option is not PIN:
                sets.append((setting, parsed))
        if len(sets) > 1 and sets[0][1] & sets[1][1]:
            yield _refused(sets[1][0], f"it shares processors with [compute] {sets[0][0].name}")
        if pin and pin.value and any(setting.name == "cpu_dedicated_set" for setting, _ in sets):
            yield _refused(pin, "it excludes [compute] cpu_dedicated_set")
        reserved = subject.last(source, _RESERVED)
        if sets and not (pin and pin.value) and reserved and reserved.value.strip().isdecimal() and int(reserved.value):
            yield _refused(reserved, f"it excludes [compute] {sets[0][0].name}")


@check(_START)
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


@check(_START)
def huge_pages(subject: LintSubject) -> Iterator[Finding]:
    """Lines of reserved_huge_pages without node, size and count."""
    for source in subject.serving("compute"):
        for setting in source.configuration.effective(PAGES.of(subject.release)):
            if setting.unknown or PAGES.type.fault(setting.value):
                continue
            parser = PAGES.type.parser
            entry = parser(setting.value) if parser else {}
            missing = [key for key in ("node", "size", "count") if key not in entry]
            numbers = [key for key in ("node", "count") if key in entry and not _is_integer(entry[key])]
            size = entry.get("size", "")
            if missing or numbers or not (_is_integer(size) or _SIZE.fullmatch(size)):
                yield _refused(setting, "it must be node:NUMBER,size:SIZE,count:NUMBER")


def _is_integer(text: str) -> bool:
    return re.fullmatch(r"\s*[-+]?\d+(_\d+)*\s*", text) is not None


@check(_START)
def mediated(subject: LintSubject) -> Iterator[Finding]:
    """Types of mediated devices: refused addresses, types and sections without effect, cards without their type."""
    of_hosts: dict[str, list[list[Finding]]] = {}
    for source in subject.serving("compute") if subject.release.major >= _VICTORIA else ():
        setting, hosts = subject.last(source, list_option(subject.release)), subject.hosts_of(source)
        known = None
        if setting is None or not setting.unknown:
            known = yield from _types(subject, source, setting, values(setting.value) if setting else ())
        for host in hosts if (spec := subject.spec) is not None and has_vgpus(spec) else ():
            found = [] if known is None or spec is None else list(_of_host(spec, subject.release, host, known))
            if len(hosts) == 1 or not found:
                of_hosts.setdefault(host.hostname, []).append(found)
    for several in of_hosts.values():  # a host may have any of them
        yield from min(several, key=len)


def _of_host(spec: Spec, release: Release, host: Host, known: Sequence[TypeSection]) -> Iterator[Finding]:
    read = card_types(known, release)
    yield from faults(host, offered_vgpus(spec, host), read, release)
    yield from types_in_use(spec, host, lambda address: read.of(address)[0])


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


@check(_START)
def provider_files(subject: LintSubject) -> Iterator[Finding]:
    """Files of provider_config that Nova refuses."""
    for provided in subject.provided.values():
        for place, error in provided.faults if provided else ():
            yield finding(Code.PROVIDER_FILE_REFUSED, place=place, error=error)


@check(_START)
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


@check(_TITLE)
def processors(subject: LintSubject) -> Iterator[Finding]:
    """Pinned flavors need dedicated processors, the others shared ones (PCPU and VCPU since Train)."""
    pinned = [shape for shape in subject.shapes if shape.cpu_policy in ("dedicated", "mixed")]
    floating = [shape for shape in subject.shapes if shape.cpu_policy != "dedicated"]
    sets: list[tuple[int, Setting]] = []
    for source in _gpu_hosts(subject) if subject.release.major >= _TRAIN else ():
        dedicated, shared, pin = (_setting(source, option) for option in (DEDICATED, SHARED, PIN))
        if pin or any(setting and setting.unknown for setting in (dedicated, shared)):
            continue
        if pinned and not dedicated and shared:
            yield finding(Code.NO_DEDICATED_CPUS, place=shared.place, flavors=_names(pinned))
        elif pinned and not dedicated and source.configuration.complete:
            yield finding(Code.PINNED_ON_ALL_CPUS, place=source.label, flavors=_names(pinned))
        if floating and dedicated and not shared:
            yield finding(Code.NO_SHARED_CPUS, place=dedicated.place, flavors=_names(floating))
        with contextlib.suppress(cpu_sets.CpuSpecError):
            if dedicated and (cpus := cpu_sets.cpus(dedicated.value)):
                sets.append((len(cpus), dedicated))
    most, largest = max(sets, key=lambda entry: entry[0], default=(0, None))
    too_large = [shape for shape in pinned if shape.cpu_policy == "dedicated" and (shape.vcpus or 0) > most]
    if largest is not None and too_large:
        yield finding(Code.DEDICATED_CPUS_TOO_FEW, place=largest.place, flavors=_names(too_large), most=most)


@check(_TITLE)
def overcommit(subject: LintSubject) -> Iterator[Finding]:
    """RAM that is promised twice: vfio pins all RAM of an instance."""
    for source in _gpu_hosts(subject):
        setting = _setting(source, RATIO)
        if setting is None or number(setting.value) == 0:
            setting = _setting(source, INITIAL_RATIO)
        if setting is None:
            if source.configuration.complete and subject.release.major <= _YOGA:
                state = f"the default of Nova {subject.release}: ram_allocation_ratio = {_OVERCOMMIT}"
                yield finding(Code.RAM_OVERCOMMITTED, place=source.label, state=state)
        elif not setting.unknown and (number(setting.value) or 0) > 1:
            yield finding(Code.RAM_OVERCOMMITTED, place=setting.place, state=f"{setting.name} = {setting.value}")


@check(_TITLE)
def machine_type(subject: LintSubject) -> Iterator[Finding]:
    """On x86, Nova's default machine type has no PCI Express."""
    for source in _gpu_hosts(subject) if subject.shapes else ():
        setting, hosts = _setting(source, MACHINE), subject.hosts_of(source)
        if setting.unknown if setting else not source.configuration.complete:
            continue
        if hosts and not any(host.architecture in (None, "x86_64") for host in hosts):
            continue
        types = dict(entry.strip().partition("=")[::2] for entry in (setting.value if setting else "").split(","))
        machine = types.get("x86_64") or "pc"
        if machine.startswith("pc") and "q35" not in machine:
            yield finding(Code.MACHINE_WITHOUT_PCIE, place=source.place(setting), machine=machine)


@check(_TITLE)
def virtual_tpm(subject: LintSubject) -> Iterator[Finding]:
    """Instances with a virtual TPM start only on hosts with swtpm."""
    requesting = [shape for shape in subject.shapes if shape.tpm]
    for source in _gpu_hosts(subject) if requesting else ():
        setting = _setting(source, SWTPM)
        if setting.unknown if setting else not source.configuration.complete:
            continue
        if setting is None or setting.value.strip().lower() not in TRUE:
            value = f"is {setting.value!r}" if setting else "is not set"
            state = f"[libvirt] swtpm_enabled {value}, but {_names(requesting)} request a virtual TPM"
            place = source.place(setting)
            yield finding(Code.TPM_PREREQUISITES, place=place, severity=Severity.WARNING, state=state)


@check(_TITLE)
def pcie_ports(subject: LintSubject) -> Iterator[Finding]:
    """GPUs take PCIe ports that the operator wanted to keep free for volumes and network ports."""
    largest = max(subject.shapes, key=lambda shape: shape.gpus, default=None)
    for source in _gpu_hosts(subject) if largest is not None else ():
        setting = _setting(source, PORTS)
        ports = number(setting.value) if setting is not None and not setting.unknown else None
        if largest and setting and ports and ports <= largest.gpus + _OWN_PORTS:
            about: dict[str, Any] = {"flavor": largest.flavor, "gpus": largest.gpus, "own": _OWN_PORTS}
            yield finding(Code.PCIE_PORTS_TOO_FEW, place=setting.place, ports=setting.value, **about)


@check(_TITLE)
def reserved_pages(subject: LintSubject) -> Iterator[Finding]:
    """Huge pages that the host keeps for itself, and that a flavor would need."""
    for source in _gpu_hosts(subject):
        settings = source.configuration.effective(PAGES)
        reserved = [_reserved(setting.value) for setting in settings if not setting.unknown]
        for shape in subject.shapes if reserved else ():
            if needs_huge_pages(shape.page_size) and shape.ram_mib and shape.nodes:
                yield from _reserved_too_many(subject, source, shape, [entry for entry in reserved if entry])


def _reserved_too_many(
    subject: LintSubject, source: Source, shape: InstanceShape, reserved: list[tuple[int, int, int]]
) -> Iterator[Finding]:
    """A finding if an instance fits into a host's huge pages, and into no host's without the reserved ones."""
    request, ram, count = shape.page_size or "", shape.ram_mib or 0, shape.nodes or 1
    most: dict[str, str] = {}
    for host in subject.hosts_of(source):
        if any(node.huge_pages is None for node in host.numa_nodes):
            return
        nodes = {
            n.node: {pool.size_kib: pool.total or 0 for pool in n.huge_pages or ()}
            for n in host.numa_nodes
            if n.cpus != ""
        }
        if not fit(request, ram_mib=ram, nodes=count, host=list(nodes.values())):
            continue
        for node, size, number_of_pages in reserved:
            if size in nodes.get(node, {}):
                nodes[node][size] -= number_of_pages
        if fit(request, ram_mib=ram, nodes=count, host=list(nodes.values())):
            return
        left = (f"{pages} x {size} KiB" for node in nodes.values() for size, pages in matching(request, node).items())
        most[host.hostname] = f"{', '.join(left) or 'none'} without those of reserved_huge_pages"
    for hostname, pages in list(most.items())[:1]:
        place, ram_of_node = source.configuration.effective(PAGES)[-1].place, f"{-(-ram // count)} MiB"
        about: dict[str, Any] = {"size": request, "nodes": count, "host": hostname, "most": pages}
        yield finding(Code.HUGE_PAGES_TOO_FEW, place=place, ram=ram_of_node, **about)


def _reserved(value: str) -> tuple[int, int, int] | None:
    """NUMA node, page size in KiB and number of ``node:0,size:1GB,count:4``."""
    entry = dict(part.strip().partition(":")[::2] for part in value.split(","))
    size = size_kib(entry.get("size", ""))
    if size is None or not entry.get("node", "").isdecimal() or not entry.get("count", "").isdecimal():
        return None
    return int(entry["node"]), size, int(entry["count"])


def _gpu_hosts(subject: LintSubject) -> Iterator[Source]:
    """The configurations of nova-compute that offer devices."""
    return (source for source in subject.serving("compute") if subject.devices_of(source))


def _setting(source: Source, option: Option) -> Setting | None:
    """The effective assignment; None if there is none, or an empty one."""
    setting = source.configuration.last(option)
    return setting if setting and setting.value.strip() else None


def _names(shapes: list[InstanceShape]) -> str:
    return listed([shape.flavor for shape in shapes], 3)
