"""Hosts and specs as hypothesis makes them up, and what should come of them."""

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from gpustack.facts.model import Host
from gpustack.nova_options import releases
from gpustack.nova_options.releases import Release
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Spec

Ids = tuple[str, str]
IDS: list[Ids] = [("10de", "11b4"), ("10de", "20b2"), ("1002", "74a1"), ("8086", "56c0"), ("10de", "0001")]
NIC = ("15b3", "1017", "020000")
AUDIO = ("10de", "0e0a", "040300")
POLICIES = ["legacy", "preferred", "required", "socket"]


def function(address: str, vendor: str, product: str, pci_class: str, **more: object) -> dict[str, Any]:
    """One function, with what Nova looks at."""
    return {"address": address, "vendor": vendor, "product": product, "class": pci_class, **more}


@dataclass(frozen=True, kw_only=True)
class Made:
    """A spec, its hosts, and the functions that each model's cards are."""

    spec: Spec
    text: str
    hosts: tuple[Host, ...]
    release: Release
    targets: dict[str, dict[str, list[str]]]  # host → alias → addresses


@st.composite
def cards(draw: st.DrawFn, pf: dict[Ids, bool]) -> tuple[list[dict[str, Any]], list[tuple[str, Ids]]]:
    """The functions of one host: GPUs with and without companions, network cards, and the GPUs' addresses."""
    functions, mains = [], []
    for bus in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from([*IDS, None]))  # None: a network card
        slot = f"0000:{bus + 1:02x}:00"
        if kind is None:
            vfs = [f"{slot}.{n}" for n in range(1, draw(st.integers(0, 2)) + 1)]
            functions.append(function(f"{slot}.0", *NIC, sriov_totalvfs=8, virtual_functions=vfs))
            functions += [function(vf, "15b3", "1018", "020000", physical_function=f"{slot}.0") for vf in vfs]
            continue
        functions.append(
            function(
                f"{slot}.0", *kind, "030000", driver="vfio-pci", sriov_totalvfs=16 if pf[kind] else None, numa_node=0
            )
        )
        mains.append((f"{slot}.0", kind))
        if draw(st.booleans()):
            functions.append(function(f"{slot}.1", *AUDIO, driver="vfio-pci"))
    return functions, mains


@st.composite
def made(draw: st.DrawFn, placements: tuple[str, ...] = ("off", "report", "schedule")) -> Made:
    """A spec with hosts that fit it."""
    release = draw(st.sampled_from(releases.releases()))
    allowed = [p for p, since in (("off", 0), ("report", 26), ("schedule", 27)) if release.major >= since]
    placement = draw(st.sampled_from([p for p in allowed if p in placements]))
    pf = {ids: draw(st.booleans()) for ids in IDS}
    hosts, mains = [], {}
    for number in range(draw(st.integers(1, 3))):
        name = f"gpu{number}"
        functions, mains[name] = draw(cards(pf))
        hosts.append(Host.model_validate({"version": 1, "hostname": name, "pci": functions}))
    there = sorted({ids for found in mains.values() for _, ids in found})
    models, lines = [], []
    targets: dict[str, dict[str, list[str]]] = {host.hostname: {} for host in hosts}
    for index, ids in enumerate(there):
        if not draw(st.booleans()):
            continue
        kept = sorted({a for found in mains.values() for a, i in found if i == ids})
        chosen = kept if draw(st.booleans()) else draw(st.lists(st.sampled_from(kept), min_size=1, unique=True))
        name = f"m{index}"
        models.append(name)
        given = f'match: {{vendor: "{ids[0]}", product: "{ids[1]}"'
        given += "}" if chosen == kept else f", addresses: {chosen!r}}}".replace("'", '"')
        policy = draw(st.none() | st.sampled_from(POLICIES))
        if policy and release.major >= (23 if policy == "socket" else 17):
            given += f", numa_policy: {policy}"
        if draw(st.booleans()):
            given += f", resource_class: CLASS_{index}"
        if draw(st.booleans()):
            given += ", traits: [CUSTOM_FAST, small]"
        if release.major >= 32 and placement != "off" and draw(st.booleans()):
            given += ", one_time_use: true"
        if release.major >= 31 and (answer := draw(st.none() | st.booleans())) is not None:
            given += f", live_migratable: {str(answer).lower()}, managed: false"
        lines.append(f"  {name}: {{{given}}}")
        for host, found in mains.items():
            targets[host][name] = [a for a, i in found if i == ids and a in chosen]
    if not models:
        models, lines = ["none"], ['  none: {match: {vendor: "10de", product: "ffff"}}']
    text = "\n".join(
        [
            "version: 1",
            "models:",
            *lines,
            f'hosts: {{"gpu*": {models}}}',
            f"nova: {{release: {release.name}, placement: {placement}}}",
            "",
        ]
    )
    return Made(spec=parse_spec(text, "made.yaml"), text=text, hosts=tuple(hosts), release=release, targets=targets)
