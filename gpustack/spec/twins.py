"""Equal hosts to which equal entries of a spec apply are decided once."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.twins import MOST_KINDS, TWIN, decided, has_identifier
from gpustack.spec.model import HostEntry, Spec, models_for, options_for, patterns_for
from gpustack.spec.network_functions import networks_for

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class _OfTwin:
    """The part of a spec that applies to a host, as a spec for its twin; compared by identity."""

    spec: Spec


def decided_by(spec: Spec, host: Host, about: Hashable, decide: Callable[[Spec, Host], T]) -> T:
    """Decide about a host and its spec, once for all equal hosts to which equal entries apply.

    :param about: the decision, and what else it depends on.
    :param decide: a pure function, as for :func:`gpustack.hosts.facts.twins.decided`.
    """
    of_twin = None if host.hostname == TWIN else _of_twin(spec, host.hostname)
    if of_twin is None:
        return decide(spec, host)
    own = of_twin.spec
    return decided(host, (about, of_twin), lambda equal: decide(own if equal.hostname == TWIN else spec, equal))


def _of_twin(spec: Spec, hostname: str) -> _OfTwin | None:
    """The spec for the twin of a host; None if an entry names one of its GPUs, or an identifier."""
    if not patterns_for(spec, hostname) or spec.out_of_service_on(hostname):
        return None
    models, networks = tuple(models_for(spec, hostname)), dict(networks_for(spec, hostname))
    options = options_for(spec, hostname)
    key = (models, tuple(networks), repr(options))
    known: _OfTwin | None = spec.of_twins.get(key)
    if known is None and not has_identifier(key[2]):
        hosts = {TWIN: HostEntry(models=models, options=options)}
        anywhere = {name: network.model_copy(update={"hosts": ()}) for name, network in networks.items()}
        if len(spec.of_twins) >= MOST_KINDS:
            spec.of_twins.clear()
        known = spec.of_twins[key] = _OfTwin(spec.changed(hosts=hosts, out_of_service=(), networks=anywhere))
    return known
