"""The requirements that the flavors of a spec have of images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpustack.hosts.facts.model import Host
from gpustack.nova_options.releases import Release
from gpustack.offer.flavor.desired import Entry, entries, extra_specs_of, refusing_hypervisor
from gpustack.offer.image.model import FlavorNeeds
from gpustack.pci.catalogue import requirement_of
from gpustack.spec.assignment import assigned_gpus
from gpustack.spec.attributes import card_of
from gpustack.spec.model import Spec
from gpustack.spec.requests import models_of

_COHERENT = "coherent-memory"


def needs_of(spec: Spec, release: Release, hosts: Sequence[Host] = ()) -> tuple[FlavorNeeds, ...]:
    """Return the requirements of each flavor of a spec.

    :param hosts: the facts of hosts, for their architectures.
    """
    return tuple(_needs(spec, entry, release, hosts) for entry in entries(spec))


def _needs(spec: Spec, entry: Entry, release: Release, hosts: Sequence[Host]) -> FlavorNeeds:
    flavor = entry.flavor
    models = models_of(spec, flavor)
    cards = [card for model in models if (card := card_of(spec.models[model]))]
    return FlavorNeeds(
        name=entry.name,
        models=models,
        vendors=frozenset(spec.models[model].match.vendor for model in models),
        images=flavor.images,
        windows=flavor.is_windows,
        disk=flavor.disk if flavor.disk is not None else (flavor.per_gpu.disk or 0) * entry.count,
        ram=_ram(entry),
        extra_specs=extra_specs_of(spec, entry, release),
        hidden_from=refusing_hypervisor(spec, flavor),
        first_branches={card.full_name: first for card in cards if (first := requirement_of(card).first)},
        last_branches={card.full_name: last for card in cards if (last := requirement_of(card).last)},
        architectures=_architectures(spec, models, hosts),
    )


def _ram(entry: Entry) -> int | None:
    fixed, share = entry.flavor.ram, entry.flavor.per_gpu.ram
    return fixed if fixed is not None else share * entry.count if isinstance(share, int) else None


def _quirks(spec: Spec, model: str) -> tuple[str, ...]:
    card = card_of(spec.models[model])
    return card.quirks if card else ()


def _architectures(spec: Spec, models: Iterable[str], hosts: Sequence[Host]) -> frozenset[str]:
    """The architectures of the hosts that pass these models through. GPUs of a superchip are on Arm hosts only."""
    wanted = set(models)
    found = {
        host.architecture
        for host in hosts
        if host.architecture and any(assigned.model in wanted for assigned in assigned_gpus(spec, host))
    }
    if not found and wanted and all(_COHERENT in _quirks(spec, model) for model in wanted):
        found = {"aarch64"}
    return frozenset(found)
