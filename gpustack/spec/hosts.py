"""The entries of a spec that apply to a host, by its name.

A host is looked up by the exact, case-sensitive name under which it is reached: the name in the inventory, on the
command line, or in the snapshot. ``gpu01`` and ``gpu01.example.org`` are two names; only a pattern such as ``gpu01*``
matches both. Otherwise a short name could match a machine of another domain, and the wrong host would be prepared.
``nearby`` finds patterns for a hint.

A host that matches several patterns gets the models of all of them. Options are merged from general to specific: the
spec's own, then those of patterns in the order of the file, then those of the host's plain name.
"""

from collections.abc import Iterator

from gpustack.base import hostnames
from gpustack.base.errors import UsageError
from gpustack.spec.model import Options, Spec
from gpustack.spec.models import Model
from gpustack.spec.patterns import HostPattern

_OTHER_WAYS = (
    "name hosts on the command line, or --local; `gpustack host apply` and `verify` also take an inventory (-i)"
)


def patterns_for(spec: Spec, hostname: str) -> tuple[str, ...]:
    """The matching keys of the spec's ``hosts``: patterns in the order of the file, the plain name last."""
    keys = [pattern.text for pattern in spec.host_patterns.matching(hostname)]
    if hostname in spec.plain_hosts:
        keys.append(hostname)
    return tuple(keys)


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


def expand(pattern: str) -> Iterator[str]:
    """The host names of a pattern's ranges, in Ansible's order.

    :raises ValueError: when it is not a host pattern, or contains ``*`` or ``?``.
    """
    return HostPattern.parse(pattern).names()


def hosts_of(spec: Spec, where: str) -> tuple[str, ...]:
    """All hosts that the spec names directly or by ranges, in the spec's order.

    :raises UsageError: when a pattern contains ``*`` or ``?``, which can't be listed, or there is no host.
    """
    hosts: dict[str, None] = {}
    for pattern in spec.hosts:
        try:
            hosts.update(dict.fromkeys(expand(pattern)))
        except ValueError as error:
            raise UsageError(
                f"the hosts of {where} can't be listed: {pattern!r}: {error}", remedy=_OTHER_WAYS
            ) from error
    if not hosts:
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
