"""Checks of device_spec: each entry by itself, against the facts of its hosts, and against the networks of the spec."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.base.text import listed
from gpustack.configure.lint.subject import DeviceLine, LintSubject, about_key, check, padded_traits
from gpustack.configure.preflight import what_is
from gpustack.configure.sources import SERVICES, Source
from gpustack.configure.vgpus import different_traits
from gpustack.hosts.facts.gpus import gpus, is_gpu
from gpustack.hosts.facts.model import Function, Host, NetworkInterface
from gpustack.hosts.facts.vgpus import lacks_type
from gpustack.hosts.readiness.assessment import State, effect
from gpustack.nova_options import releases
from gpustack.nova_options.device_spec import ADDRESS_FIELDS, ANY, DeviceSpec, matched, offered
from gpustack.nova_options.pci_values import is_true, placement_faults, specs_of
from gpustack.nova_options.scheduler import REPORT
from gpustack.pci import catalogue, classes
from gpustack.spec.verdict import verdicts

_TITLE = "Device specs"
_FIELDS = ("vendor_id", "product_id", "address", "devname")
_MISTAKEN = {
    "vendor": "vendor_id",
    "product": "product_id",
    "device_id": "product_id",
    "device": "product_id",
    "addr": "address",
    "pci_address": "address",
}
_NEEDS_REPORT = ("resource_class", "traits")
_REMOTE = 25
"""The release that added remote_managed."""
_SHOWN = 8


@check(_TITLE)
def syntax(subject: LintSubject) -> Iterator[Finding]:
    """Values that are neither JSON objects nor lists of them."""
    yield from subject.misshapen(releases.device_spec_option(subject.release), specs_of, *SERVICES)


@check(_TITLE)
def keys(subject: LintSubject) -> Iterator[Finding]:
    """Values that Nova refuses, and unknown keys, which Nova keeps as tags."""
    known = releases.keys("device_spec", subject.release)
    for line in subject.entries:
        try:
            DeviceSpec.parse(line.data, booleans=subject.normalised)
        except ValueError as error:
            yield finding(Code.VALUE_INVALID, place=line.place, where="device_spec", error=error)
        strict = "one_time_use" in subject.normalised and is_true(line.data.get("one_time_use"))
        if strict and not subject.on(REPORT, line.source):
            yield finding(Code.ONE_TIME_USE_WITHOUT_REPORT, place=line.place)
        for key in line.data:
            if key in known or "compute" not in line.source.services:
                continue
            near = _MISTAKEN.get(key) or next(iter(difflib.get_close_matches(key, known, n=1, cutoff=0.75)), None)
            grave = Severity.ERROR if near in _FIELDS and near not in line.data else None
            about = about_key("device_spec", key, near, subject.release)
            yield finding(Code.DEVICE_SPEC_TAG_UNKNOWN, place=line.place, severity=grave, **about)
        address = line.data.get("address")
        for key in address if isinstance(address, dict) and "compute" in line.source.services else ():
            if key not in ADDRESS_FIELDS:
                about = about_key("device_spec", f"address.{key}", None, subject.release)
                about["known"] = f"known are {', '.join(ADDRESS_FIELDS)}"
                yield finding(Code.DEVICE_SPEC_TAG_UNKNOWN, place=line.place, severity=Severity.ERROR, **about)


@check(_TITLE)
def without_effect(subject: LintSubject) -> Iterator[Finding]:
    """Addresses that match no device, and tags that hide devices from aliases."""
    for line in subject.devices:
        for pattern in line.spec.address.in_capitals() if line.spec else ():
            yield finding(Code.CAPITAL_IN_ADDRESS, place=line.place, value=pattern)
        if line.spec and is_true(line.data.get("remote_managed")):
            for host in subject.hosts_of(line.source):
                function = host.functions.get(line.spec.address.text)
                parts = [host.functions[part].product for part in function.virtual_functions] if function else []
                if function and function.sriov_totalvfs and line.spec.product_id not in parts:
                    error = f"remote_managed is on for the physical function {function.address} of {host.hostname}"
                    yield finding(Code.VALUE_INVALID, place=line.place, where="device_spec", error=error)
        if _remote(subject, line) and not _for_neutron(line):
            yield finding(Code.REMOTE_MANAGED_HIDES_DEVICE, place=line.place)


@check(_TITLE)
def placement_tags(subject: LintSubject) -> Iterator[Finding]:
    """Tags that have no effect without report_in_placement, and with it, values that Placement refuses."""
    for line in subject.devices:
        if _reported(subject, line.source, line):
            for fault in placement_faults(line.data) if not _remote(subject, line) else ():
                yield finding(Code.VALUE_INVALID, place=line.place, where="device_spec", error=fault)
            yield from padded_traits(line)
        elif REPORT.known_to(subject.release) and not subject.on(REPORT, line.source):
            for key in line.data.keys() & set(_NEEDS_REPORT):
                yield finding(Code.DEVICE_SPEC_PLACEMENT_KEY_UNUSED, place=line.place, key=key)


@check(_TITLE)
def wide(subject: LintSubject) -> Iterator[Finding]:
    """Entries that match more than GPUs, judged without facts."""
    for line in subject.devices:
        if line.spec is None:
            continue
        if line.spec.is_everything:
            problem = "the entry lets every device of the host through"
            yield finding(Code.DEVICE_SPEC_TOO_BROAD, place=line.place, severity=Severity.ERROR, what=problem)
        elif not subject.hosts and not _for_neutron(line) and (why := _wide(line.spec)):
            yield finding(Code.DEVICE_SPEC_TOO_BROAD, place=line.place, what=why)


def _wide(spec: DeviceSpec) -> str | None:
    if spec.devname or (spec.vendor_id != ANY and spec.product_id != ANY) or spec.address.is_single:
        return None
    if spec.address.is_everything:
        if spec.vendor_id != ANY:
            maker = catalogue.vendor_name(spec.vendor_id) or "the vendor"
            return f"the entry names vendor {spec.vendor_id} alone: every device that {maker} makes fits"
        return "the entry names a product without its vendor"
    return "the entry names addresses by a pattern, without vendor_id and product_id"


@check(_TITLE)
def interface_names(subject: LintSubject) -> Iterator[Finding]:
    """Entries that name a network interface (devname)."""
    for line in subject.devices:
        if not (devname := line.data.get("devname")):
            continue
        if subject.on(REPORT, line.source):
            yield finding(Code.DEVNAME_UNDER_PLACEMENT, place=line.place, devname=devname)
        elif not _for_neutron(line):
            yield finding(Code.DEVICE_SPEC_BY_INTERFACE, place=line.place, devname=devname)


@check(_TITLE)
def neutrons(subject: LintSubject) -> Iterator[Finding]:
    """GPUs with Neutron's tag physical_network."""
    for line in subject.devices:
        if line.spec is None or not _for_neutron(line):
            continue
        of_gpu = line.spec.vendor_id in ("10de", "1002")
        for host in subject.hosts_of(line.source):
            of_gpu |= any(line.spec.matches(gpu.main, host) for gpu in gpus(host))
        if of_gpu:
            reported = subject.on(REPORT, line.source) and line.data["physical_network"]
            severity = Severity.ERROR if reported else None
            why = ", and PCI in Placement passes over it" if reported else ""
            yield finding(Code.PHYSICAL_NETWORK_ON_GPU, place=line.place, severity=severity, why=why)


@check("Devices of the hosts")
def of_ports(subject: LintSubject) -> Iterator[Finding]:
    """Network cards that the host uses and virtual functions that carry its network, in entries for ports."""
    for line in subject.devices:
        for host in subject.hosts_of(line.source) if _for_neutron(line) else ():
            for function in sorted(host.pci, key=lambda f: f.bdf):
                if line.spec is not None and line.spec.matches(function, host):
                    yield from _of_network(line.place, host.hostname, function)


def _of_network(place: str, host: str, function: Function) -> Iterator[Finding]:
    use, address = function.uses.net, function.address
    if function.dev_type == "type-PF" and (used := ", ".join(net.name for net in use if net.in_use)):
        yield finding(Code.NETWORK_CARD_OFFERED, place=place, host=host, address=address, interfaces=used)
    if function.dev_type == "type-VF" and (used := ", ".join(net.name for net in use if _carries(net))):
        yield finding(Code.NETWORK_FUNCTION_OF_HOST_OFFERED, place=place, host=host, address=address, use=used)


def _carries(net: NetworkInterface) -> bool:
    """Whether an interface is used for more than the ports of instances of the type macvtap."""
    uppers = [name for name in net.uppers or () if not name.startswith(("macvtap", "tap"))]
    return bool(uppers) or net.routes in ("default", "networks")


def _for_neutron(line: DeviceLine) -> bool:
    """Whether an entry is for Neutron's ports; the value null is for ports of tunnelled networks."""
    return "physical_network" in line.data


@check("Devices of the hosts")
def on_hosts(subject: LintSubject) -> Iterator[Finding]:
    """Devices that entries match on hosts with known facts."""
    for line in subject.devices:
        if line.spec is None or _for_neutron(line):
            continue
        hosts = subject.hosts_of(line.source)
        for host in hosts:
            functions = [f for f in sorted(host.pci, key=lambda f: f.bdf) if line.spec.matches(f, host)]
            if not functions and len(hosts) == 1:
                yield finding(Code.DEVICE_SPEC_MATCHES_NOTHING, place=line.place, host=host.hostname)
            for function in functions:
                yield from _judged(line.place, line.spec, host, function)
            if untyped := [f.address for f in functions if lacks_type(f)]:
                what = f"{host.hostname} offers {listed(untyped, 5)}"
                yield finding(Code.VGPU_TYPE_MISSING, place=line.place, severity=Severity.WARNING, what=what)


def _judged(place: str, spec: DeviceSpec, host: Host, function: Function) -> Iterator[Finding]:
    """Reasons against offering a function: it is a companion, or the host uses it."""
    exact = (spec.vendor_id != ANY and spec.product_id != ANY) or spec.address.is_single
    about: dict[str, Any] = {"place": place, "host": host.hostname, "address": function.address}
    about["what"], card = what_is(host, function.address), host.functions.get(function.physical_function or "")
    if any(function.address == companion.address for gpu in gpus(host) for companion in gpu.companions):
        yield finding(Code.DEVICE_SPEC_MATCHES_COMPANION, severity=Severity.WARNING if exact else None, **about)
    elif not (is_gpu(function) or (card and is_gpu(card))) and (not exact or _in_use(function)):
        yield finding(Code.DEVICE_SPEC_MATCHES_OTHER_DEVICE, **about)


def _in_use(function: Function) -> bool:
    return (
        any(net.in_use for net in function.uses.net)
        or bool(function.uses.block)
        or classes.is_forwarding_bridge(function.pci_class)
        or catalogue.is_console(function.vendor, function.product, function.pci_class)
    )


@check("Devices of the hosts")
def blocked(subject: LintSubject) -> Iterator[Finding]:
    """GPUs that are offered, although no instance can use them, or the spec has them out of service."""
    for source in subject.serving("compute"):
        specs = [line.spec for line in subject.devices_of(source) if line.spec is not None]
        for host in subject.hosts_of(source) if specs else ():
            judged = verdicts(subject.spec, host).by_address
            for address in sorted(offered(specs, host) & judged.keys()):
                verdict, place = judged[address], f"{host.hostname} {address}"
                if verdict.out_of_service:
                    yield finding(Code.OUT_OF_SERVICE_LISTED, place=place, reason=verdict.out_of_service.why)
                for reason in verdict.readiness.reasons if verdict.address == address else ():
                    if effect(reason) in (State.BLOCKED, State.UNKNOWN):
                        yield replace(reason, severity=Severity.WARNING)


def _placed(subject: LintSubject) -> Iterator[tuple[Source, Host, dict[str, DeviceLine]]]:
    """The entry of each device that Nova is sure to offer: with remote_managed, it needs a serial number in the VPD."""
    for source in subject.serving("compute"):
        lines = [line for line in subject.devices_of(source) if line.spec and not _remote(subject, line)]
        for host in subject.hosts_of(source) if lines else ():
            yield source, host, _first(lines, host)


def _reported(subject: LintSubject, source: Source, *lines: DeviceLine) -> bool:
    """Whether nova-compute reports the devices of entries to Placement: none of a network (``_add_dev``)."""
    return subject.on(REPORT, source) and not any(line.data.get("physical_network") for line in lines)


def _remote(subject: LintSubject, line: DeviceLine) -> bool:
    return subject.release.major >= _REMOTE and is_true(line.data.get("remote_managed"))


@check("Devices of the hosts")
def dependent(subject: LintSubject) -> Iterator[Finding]:
    """Physical functions that are offered together with their virtual functions."""
    for source, host, placed in _placed(subject):
        for address in sorted(placed):
            parts = sorted(placed.keys() & set(host.functions[address].virtual_functions))
            reported = [part for part in parts if _reported(subject, source, placed[part], placed[address])]
            if parts:
                yield finding(
                    Code.DEPENDENT_DEVICES_UNDER_PLACEMENT if reported else Code.PHYSICAL_AND_VIRTUAL_FUNCTIONS,
                    place=placed[(reported or parts)[0]].place,
                    host=host.hostname,
                    address=address,
                    functions=", ".join(reported or parts),
                )


@check("Devices of the hosts")
def mixed(subject: LintSubject) -> Iterator[Finding]:
    """Functions of one card with different resource classes or traits, which PCI in Placement refuses."""
    for source, host, placed in _placed(subject):
        by_card: dict[str, dict[str, DeviceLine]] = {}
        for address, line in placed.items():
            card = host.functions[address].physical_function
            if card is not None and _reported(subject, source, line):
                if "one_time_use" in subject.normalised and line.data.get("one_time_use") is not None:
                    what = f"on {host.hostname}, the entry matches the virtual function {address}"
                    yield finding(Code.ONE_TIME_USE_ON_FUNCTION, place=line.place, what=what)
                by_card.setdefault(card, {})[address] = line
        for card, lines in by_card.items():
            by_address = {address: lines[address].data for address in sorted(lines)}
            yield from different_traits(lines[min(lines)].place, host.hostname, card, by_address)


@check("Networks of the spec")
def networks(subject: LintSubject) -> Iterator[Finding]:
    """Virtual functions of the spec's networks that no entry matches, or one with another physical network."""
    computes = subject.serving("compute")
    sources_of = by_key((host.hostname, source) for source in computes for host in subject.hosts_of(source))
    for host in subject.hosts:
        sources = sources_of.get(host.hostname, [])
        yield from _missing(subject, sources, host)
        for source in sources:
            yield from _different(subject, source, host)


def _missing(subject: LintSubject, sources: list[Source], host: Host) -> Iterator[Finding]:
    """Virtual functions that no configuration of the host offers: one that serves several hosts may lack entries."""
    if not sources:
        return
    found = {address for source in sources for address in _first(subject.devices_of(source), host)}
    ports = subject.ports.get(host.hostname, {})
    missing = by_key((network, address) for address, (network, _) in ports.items() if address not in found)
    own = min(sources, key=lambda source: len(subject.hosts_of(source)))
    for network, addresses in missing.items():
        about: dict[str, Any] = {"host": host.hostname, "functions": listed(addresses, _SHOWN)}
        yield finding(Code.NETWORK_NOT_OFFERED, place=own.label, network=network, **about)


def _different(subject: LintSubject, source: Source, host: Host) -> Iterator[Finding]:
    ports = subject.ports.get(host.hostname, {})
    found = ((a, line, *ports[a]) for a, line in _first(subject.devices_of(source), host).items() if a in ports)
    wrong = (entry for entry in found if entry[1].data.get("physical_network") != entry[3])
    different = by_key(((line, network, expected), address) for address, line, network, expected in wrong)
    for (line, network, expected), addresses in different.items():
        actual = line.data.get("physical_network")
        yield finding(
            Code.PHYSICAL_NETWORK_DIFFERS,
            place=line.place,
            network=network,
            host=host.hostname,
            functions=listed(addresses, _SHOWN),
            actual="no physical network" if actual is None else f"the physical network {actual}",
            expected=expected,
        )


def _first(lines: Sequence[DeviceLine], host: Host) -> dict[str, DeviceLine]:
    """The first entry that matches each function that a host offers."""
    of_specs = [(line.spec, line) for line in lines if line.spec is not None]
    return {address: of_specs[index][1] for address, index in matched([spec for spec, _ in of_specs], host).items()}
