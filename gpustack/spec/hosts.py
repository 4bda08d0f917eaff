"""The entries of a spec that apply to a host, by its name.

A host is looked up by the exact, case-sensitive name under which it is reached: the name in the inventory, on the
command line, or in the snapshot. ``gpu01`` and ``gpu01.example.org`` are two names; only a pattern such as ``gpu01*``
matches both. Otherwise a short name could match a machine of another domain, and the wrong host would be prepared.
``nearby`` finds patterns for a hint.

A host that matches several patterns gets the models of all of them. Options are merged from general to specific: the
spec's own, then those of patterns in the order of the file, then those of the host's plain name.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpustack.base import hostnames
from gpustack.base.errors import SpecError, UsageError
from gpustack.base.files import read_text
from gpustack.base.findings import Code, Finding, finding
from gpustack.spec.model import Options, Spec
from gpustack.spec.models import Model
from gpustack.spec.patterns import GROUP, HostPattern

_OTHER_WAYS = "name hosts on the command line, --local, or an inventory with -i"


def patterns_for(spec: Spec, hostname: str) -> tuple[str, ...]:
    """The matching keys of the spec's ``hosts``: patterns in the order of the file, the plain name last.

    :raises SpecError: if the spec names a group whose hosts are not known.
    """
    if spec.host_patterns.has_groups:
        raise SpecError(
            "the spec names groups of an inventory, and their hosts are not known here",
            where=hostname,
            remedy="name the inventory with -i, or facts of `gpustack scan -i INVENTORY --save FILE` with --snapshot",
        )
    keys = [pattern.text for pattern in spec.host_patterns.matching(hostname)]
    if hostname in spec.plain_hosts:
        keys.append(hostname)
    return tuple(keys)


def left_out(spec: Spec, path: str, hostname: str, limit: str) -> str:
    """The text about a host that neither the spec nor Ansible's ``--limit`` names; empty for another one.

    :param path: that of the spec.
    :param limit: patterns, or ``@`` and a file of them.
    """
    named = read_text(Path(limit[1:])).split() if limit.startswith("@") else re.split("[,:]", limit)
    return "" if hostname in named or patterns_for(spec, hostname) else f"{hostname}: not in {path}, left out"


def not_in_spec(spec: Spec, hostname: str) -> Finding:
    """The finding about a host that the operator names and the spec lacks."""
    patterns = nearby(spec, hostname)
    hint = f" ({', '.join(patterns)} would match with another domain or case)" if patterns else ""
    return finding(Code.HOST_NOT_IN_SPEC, place=hostname, hint=hint)


def with_groups(spec: Spec, groups: Mapping[str, Sequence[str] | None]) -> Spec:
    """The spec with hosts instead of the groups of Ansible's inventory that it names.

    Options of a group are more specific than those of patterns, and those of a plain name more specific than both.

    :param groups: the groups of each host; None if it was read without an inventory.
    :raises SpecError: if a host was read without an inventory.
    """
    texts = [*spec.hosts, *(name for network in spec.networks.values() for name in network.hosts)]
    texts += [name for entry in (spec.tenancy.aggregates.values() if spec.tenancy else ()) for name in entry.hosts]
    if not groups or not any(text.startswith(GROUP) for text in texts):
        return spec
    members: dict[str, list[str]] = {}
    for host, own_groups in groups.items():
        if own_groups is None:
            raise SpecError(
                "the spec names groups, and the facts of this host do not record its groups",
                where=host,
                remedy="read hosts with their inventory: -i INVENTORY, also for `gpustack scan --save`",
            )
        for group in own_groups:
            members.setdefault(f"{GROUP}{group}", []).append(host)

    def named(entry: Any) -> Any:  # noqa: ANN401 - a network or an aggregate; without hosts, it has all of them
        names = (name for text in entry.hosts for name in members.get(text, [text]))
        return entry.model_copy(update={"hosts": tuple(names)})

    entries: dict[str, Any] = {}
    for text in sorted(spec.hosts, key=lambda text: not text.startswith(GROUP)):
        for name in members.get(text, () if text.startswith(GROUP) else [text]):
            own, other = spec.hosts[text], entries.get(name)
            if other is not None:
                models = tuple(dict.fromkeys((*other.models, *own.models)))
                own = own.model_copy(update={"models": models, "options": other.options.overlaid(own.options)})
            entries[name] = own
    tenancy = spec.tenancy
    if tenancy is not None:
        aggregates = {name: named(entry) for name, entry in tenancy.aggregates.items()}
        tenancy = tenancy.model_copy(update={"aggregates": aggregates})
    networks = {name: named(network) for name, network in spec.networks.items()}
    return spec.changed(hosts=entries, networks=networks, tenancy=tenancy)


def models_for(spec: Spec, hostname: str) -> dict[str, Model]:
    """The models that a host passes through, by name in the order of the spec; empty when no pattern matches.

    :raises KeyError: when the spec was not checked and names an undefined model.
    """
    wanted = {name for text in patterns_for(spec, hostname) for name in spec.hosts[text].models}
    if missing := wanted - spec.models.keys():
        raise KeyError(", ".join(sorted(missing)))
    return {name: model for name, model in spec.models.items() if name in wanted}


def options_for(spec: Spec, hostname: str) -> Options:
    """The options of a host; the spec's own when no pattern matches."""
    options = spec.options
    for text in patterns_for(spec, hostname):
        options = options.overlaid(spec.hosts[text].options)
    return options


def hosts_of(spec: Spec, where: str | None) -> tuple[str, ...]:
    """All hosts that the spec names directly or by ranges, in the spec's order.

    :param where: the spec's file, for errors; None to skip groups and patterns that can't be listed.
    :raises UsageError: when a pattern is a group, or contains ``*`` or ``?``, or there is no host.
    """
    hosts: dict[str, None] = {}
    for pattern in spec.hosts:
        try:
            hosts.update(dict.fromkeys(HostPattern.parse(pattern).names()))
        except ValueError as error:
            if where is None:
                continue
            raise UsageError(
                f"the hosts of {where} can't be listed: {pattern!r}: {error}", remedy=_OTHER_WAYS
            ) from error
    if not hosts and where is not None:
        raise UsageError(f"{where} names no host", remedy=_OTHER_WAYS)
    return tuple(hosts)


def nearby(spec: Spec, hostname: str) -> tuple[str, ...]:
    """Patterns that do not match a host only because of its domain or case, for a hint.

    They match the host's short name, or their own part before the first dot matches it.
    """
    shorts = _cases(hostnames.head(hostname))
    patterns = []
    for text in spec.hosts:
        head = hostnames.head(text)
        pattern = HostPattern.parse(text)
        if not pattern.matches(hostname) and (
            any(map(pattern.matches, (*_cases(hostname), *shorts)))
            or (head and any(map(HostPattern.parse(head).matches, shorts)))
        ):
            patterns.append(text)
    return tuple(patterns)


def _cases(name: str) -> tuple[str, ...]:
    return (name, name.lower(), name.upper())
