"""Checks of device_spec against the networks of the spec, on hosts with known facts."""

from collections.abc import Iterator

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding, finding
from gpustack.base.text import listed
from gpustack.configure.lint.subject import DeviceLine, LintSubject, check
from gpustack.configure.sources import Source
from gpustack.hosts.facts.model import Host
from gpustack.nova_options.device_spec import matched

_SHOWN = 8


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
    found = {address for source in sources for address, _ in _entries(subject, source, host)}
    ports = subject.ports.get(host.hostname, {})
    missing = by_key((network, address) for address, (network, _) in ports.items() if address not in found)
    own = min(sources, key=lambda source: len(subject.hosts_of(source)))
    for network, addresses in missing.items():
        yield finding(
            Code.NETWORK_NOT_OFFERED,
            place=own.label,
            network=network,
            host=host.hostname,
            functions=listed(addresses, _SHOWN),
        )


def _different(subject: LintSubject, source: Source, host: Host) -> Iterator[Finding]:
    ports = subject.ports.get(host.hostname, {})
    different: dict[tuple[DeviceLine, str, str], list[str]] = {}
    for address, line in _entries(subject, source, host):
        network, expected = ports.get(address, (None, None))
        if network and expected and line.data.get("physical_network") != expected:
            different.setdefault((line, network, expected), []).append(address)
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


def _entries(subject: LintSubject, source: Source, host: Host) -> Iterator[tuple[str, DeviceLine]]:
    """The functions of a host that a configuration offers, each with the first entry that matches."""
    lines = [line for line in subject.devices_of(source) if line.spec is not None]
    for address, index in matched([line.spec for line in lines if line.spec is not None], host).items():
        yield address, lines[index]
