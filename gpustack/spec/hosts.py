"""What a spec says about one host, by its name.

The rule of names: a host is looked up by the very name under which it is reached, letter by letter: the name in
the inventory, on the command line, or in the snapshot. ``gpu01`` and ``gpu01.example.org`` are two names, and a
pattern fits one of them only when it is written so (``gpu01*`` fits both): a short name that silently stood for
a machine of another domain would prepare the wrong host. ``nearby`` finds what was probably meant.

A host that fits several patterns gives the models of all of them. Options go from the general to the particular:
the spec's own, then those of patterns in the order of the file, then those of the host's plain name.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpustack import hostnames
from gpustack.spec.model import Model, Options, Spec
from gpustack.spec.patterns import HostPattern


def patterns_for(spec: Spec, hostname: str) -> tuple[str, ...]:
    """The keys of the spec's ``hosts`` that fit a host: patterns in the order of the file, its plain name last."""
    keys = [pattern.text for pattern in spec.host_patterns if pattern.matches(hostname)]
    if hostname in spec.plain_hosts:
        keys.append(hostname)
    return tuple(keys)


def models_for(spec: Spec, hostname: str) -> dict[str, Model]:
    """The models whose cards a host gives to guests, by name in the order of the spec; empty when no pattern fits.

    :raises KeyError: when the spec was not checked, and names a model that it has not got.
    """
    wanted = {name for text in patterns_for(spec, hostname) for name in spec.hosts[text].models}
    if missing := wanted - spec.models.keys():
        raise KeyError(", ".join(sorted(missing)))
    return {name: model for name, model in spec.models.items() if name in wanted}


def options_for(spec: Spec, hostname: str) -> Options:
    """The options that hold for a host; the spec's own when no pattern fits."""
    options = spec.options
    for text in patterns_for(spec, hostname):
        options = options.overlaid(spec.hosts[text].options)
    return options


def expand(pattern: str) -> Iterator[str]:
    """The host names that a pattern's ranges stand for, in Ansible's order.

    :raises ValueError: when it is no host pattern, or holds ``*`` or ``?``.
    """
    return HostPattern.parse(pattern).names()


def nearby(spec: Spec, hostname: str) -> tuple[str, ...]:
    """Patterns that miss a host only by its domain: for the message that no pattern fits.

    They fit the host's short name, or their own part before the first dot fits it.
    """
    short = hostnames.head(hostname)
    patterns = []
    for text in spec.hosts:
        head = hostnames.head(text)
        pattern = HostPattern.parse(text)
        if not pattern.matches(hostname) and (
            pattern.matches(short) or (head and HostPattern.parse(head).matches(short))
        ):
            patterns.append(text)
    return tuple(patterns)
