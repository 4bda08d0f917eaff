"""Generate a first ``gpustack.yaml`` from a scan, for the operator to edit."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpustack.base.by_key import by_key
from gpustack.base.errors import GpustackError
from gpustack.base.host_groups import fold, natural
from gpustack.base.text import counted, listed, printable
from gpustack.hosts.facts.gpus import Gpu, card_of, displays, gpus, is_integrated, nvswitches
from gpustack.hosts.facts.model import Function, Host
from gpustack.pci import catalogue
from gpustack.spec.document import is_text
from gpustack.spec.load import parse_spec
from gpustack.spec.model import NvSwitch
from gpustack.spec.schema import SCHEMA_FILE

_BRANDS = {"grid", "tesla", "quadro", "geforce", "radeon", "instinct", "firepro", "pro", "data", "center", "gpu"}
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*(\[[0-9]+:[0-9]+\][A-Za-z0-9_.-]*)?")
_INTEGRATED = "graphics or accelerators that are part of the processor"
_CONSOLE = "the boot GPUs of hosts that would have no other display for their console"
_SHARED = "cards with virtual functions"
_EMULATED = "the display adapter of a virtual machine"
_REASONS = (_SHARED, _INTEGRATED, _EMULATED, _CONSOLE)
_NVSWITCH = {
    NvSwitch.FULL: "one instance gets all GPUs and all switches, and runs Fabric Manager",
    NvSwitch.SHARED: "a service instance has the switches and partitions the fabric for the others",
    NvSwitch.ISOLATED: "every GPU works alone, without NVLink; the host keeps the switches",
}


@dataclass(frozen=True, order=True)
class _Kind:
    """The key of a model: the ids, and the subsystem if the catalogue distinguishes boards by it."""

    vendor: str
    product: str
    subsystem: tuple[str, str] | tuple[()]
    name: str = field(compare=False)
    card: catalogue.Card | None = field(compare=False)


def initial_spec(hosts: Sequence[Host], *, unread: Sequence[str] = (), schema: str = str(SCHEMA_FILE)) -> str:
    """The text of a first spec, with comments, for these hosts and their GPUs.

    Integrated graphics are omitted. So is the GPU that a host boots on, if the spec would otherwise assign all of its
    displays: the host needs them. Cards with virtual functions are omitted: their virtual functions are offered
    instead of them.

    :param unread: hosts that could not be read, for a comment.
    :param schema: path or URL of the JSON schema, for editors.
    :raises GpustackError: when no host has a GPU for a spec.
    """
    by_host: dict[str, _Found] = {}
    for host in hosts:
        by_host.setdefault(host.hostname, _Found()).add(host)
    for of_host in by_host.values():
        of_host.keep_console()
    cards = {name: list(found.cards.values()) for name, found in by_host.items()}
    if not any(cards.values()):
        raise _nothing_found(by_host)
    kinds = {id(gpu): kind for gpu, kind in _kinds([gpu for of_one in cards.values() for gpu in of_one])}
    names = _names(set(kinds.values()))
    switched = {host.hostname for host in hosts if nvswitches(host)}
    models = {name: {names[kinds[id(gpu)]] for gpu in of_one} for name, of_one in cards.items()}
    lines = [
        f"# yaml-language-server: $schema={printable(schema, keep='')}",
        "#",
        f"# A first spec, written by `gpustack spec init` from a scan of {counted(len(cards), 'host')}.",
        "# Review it, and remove GPUs that are not for passthrough. Then run `gpustack spec check` on it, and",
        "# `gpustack host plan`.",
        "version: 1",
        *_models(kinds, names, cards),
        *_hosts(models, switched, order=list(names.values())),
        *_remarks(by_host, unread),
    ]
    text = "\n".join(lines) + "\n"
    parse_spec(text, "the new spec")
    return text


def _remarks(by_host: Mapping[str, _Found], unread: Sequence[str]) -> Iterator[str]:
    """Comments about hosts and GPUs that are not in the spec."""

    def note(what: str, applies: Callable[[_Found], object]) -> list[str]:
        return _note(what, (name for name, of_host in by_host.items() if applies(of_host)))

    yield from note("No GPU found on", lambda of_host: not (of_host.cards or any(of_host.omitted.values())))
    yield from _note("Not in this spec, because the scan failed:", unread)
    yield from note(f"Omitted ({_INTEGRATED}):", lambda of_host: of_host.omitted[_INTEGRATED])
    yield from note(f"Omitted ({_EMULATED}):", lambda of_host: of_host.omitted[_EMULATED])
    for ids in sorted({ids for of_host in by_host.values() for ids in of_host.virtual_ids}):
        names = [name for name, of_host in by_host.items() if ids in of_host.virtual_ids]
        yield from _note(f"Omitted ({_SHARED}):", names)
        yield "# To offer them, add a model; if nothing creates them at boot, use `vfs` or `vgpu` of the card's model:"
        yield f'#   match: {{vendor: "{ids[0]}", product: "{ids[1]}", function: virtual}}'
    if console := note(f"Omitted ({_CONSOLE}):", lambda of_host: of_host.omitted[_CONSOLE]):
        yield from (*console, "# If a host needs no screen, add the model to its entry.")
    yield from note(
        "Note: this spec passes through all displays of these hosts, so their consoles lose the screen:",
        lambda of_host: of_host.loses_its_console,
    )


def _nothing_found(by_host: Mapping[str, _Found]) -> GpustackError:
    names = listed(list(by_host), 5) or "no host"
    why = [reason for reason in _REASONS if any(of_host.omitted[reason] for of_host in by_host.values())]
    left_out = f"; omitted: {', '.join(why)}" if why else ""
    return GpustackError(
        f"no GPU found on {names} for a spec{left_out}",
        remedy='to offer virtual functions, write a spec with `vgpu`, `vfs` or `function: virtual`: see "Share a GPU"'
        if _SHARED in why
        else "run `gpustack scan HOST` to list a host's devices",
    )


@dataclass(kw_only=True)
class _Found:
    """The GPUs of one host by address, sorted by their use in the spec.

    :ivar cards: the GPUs that are in the spec.
    :ivar omitted: the others, by the reason. If no other display would remain, the GPU that the host boots on is among
        them, with those of the same ids, which a spec can't distinguish from it.
    :ivar displays: every function that can show the host's console.
    """

    cards: dict[str, Gpu] = field(default_factory=dict)
    omitted: dict[str, dict[str, Gpu]] = field(default_factory=lambda: {reason: {} for reason in _REASONS})
    displays: set[str] = field(default_factory=set)

    def add(self, host: Host) -> None:
        """Sort the GPUs of a scan. A host that was scanned twice gets the cards of both scans."""
        for gpu in gpus(host):
            kind = self.cards
            if is_integrated(host, gpu.main):
                kind = self.omitted[_INTEGRATED]
            elif gpu.virtual:
                kind = self.omitted[_SHARED]
            elif catalogue.is_console(gpu.main.vendor, gpu.main.product):
                kind = self.omitted[_EMULATED]
            kind[gpu.main.address] = gpu
        self.displays.update(function.address for function in displays(host))

    def keep_console(self) -> None:
        """Reserve the GPU that the host boots on, if all its displays are GPUs of the spec."""
        boots_on = {gpu.main.ids for gpu in self.cards.values() if any(f.boot_vga for f in gpu.functions)}
        if self.loses_its_console:
            self.omitted[_CONSOLE] = {a: gpu for a, gpu in self.cards.items() if gpu.main.ids in boots_on}
            self.cards = {a: gpu for a, gpu in self.cards.items() if gpu.main.ids not in boots_on}

    @property
    def loses_its_console(self) -> bool:
        """Whether all displays of the host are GPUs of the spec."""
        return bool(self.displays) and self.displays <= {
            f.address for gpu in self.cards.values() for f in gpu.functions
        }

    @property
    def virtual_ids(self) -> set[tuple[str, str]]:
        """Vendor and product of the virtual functions of its cards."""
        return {(part.vendor, part.product) for gpu in self.omitted[_SHARED].values() for part in gpu.virtual}


def _kinds(gpus: Sequence[Gpu]) -> Iterator[tuple[Gpu, _Kind]]:
    """Each GPU with its kind, which includes the subsystem only if different cards share vendor and product."""
    cards = by_key((gpu.main.ids, card_of(gpu.main)) for gpu in gpus)
    for gpu in gpus:
        main, card = gpu.main, card_of(gpu.main)
        subsystem: tuple[str, str] | tuple[()] = ()
        if len(set(cards[main.ids])) > 1 and card and card.subsystems:
            subsystem = (main.subsystem_vendor or "", main.subsystem_product or "")
        name = card.full_name if card else catalogue.describe(main.vendor, main.product, main.pci_class)
        yield gpu, _Kind(main.vendor, main.product, subsystem, name, card)


def _names(kinds: Iterable[_Kind]) -> dict[_Kind, str]:
    """A name for each kind: the card's short name, with ids if two cards share it."""
    ordered = sorted(kinds, key=lambda kind: (natural(_slug(kind)), kind))
    slugs = Counter(map(_slug, ordered))
    ids = Counter((_slug(kind), kind.product) for kind in ordered)
    names: dict[_Kind, str] = {}
    for kind in ordered:
        name = _slug(kind)
        if kind.subsystem and ids[name, kind.product] > 1:
            name = "-".join((name, *kind.subsystem))
        elif slugs[name] > 1:
            name = f"{name}-{kind.product}"
        numbered = (f"{name}-{number}" for number in itertools.count(2))
        names[kind] = next(n for n in itertools.chain([name], numbered) if n not in names.values())
    return names


def _slug(kind: _Kind) -> str:
    if kind.card is None:
        return f"{(catalogue.vendor_name(kind.vendor) or f'gpu-{kind.vendor}').lower()}-{kind.product}"
    parts = re.findall(r"[a-z0-9]+", kind.card.name.lower())
    while len(parts) > 1 and parts[0] in _BRANDS:
        del parts[0]
    return "-".join(parts)[:40].rstrip("-")


def _models(kinds: Mapping[int, _Kind], names: Mapping[_Kind, str], cards: Mapping[str, list[Gpu]]) -> list[str]:
    lines = ["", "# The kinds of GPU. Choose the names yourself: flavors and aliases use them.", "models:"]
    for position, (kind, name) in enumerate(names.items()):
        functions = {
            host: [gpu.main for gpu in host_gpus if kinds[id(gpu)] == kind] for host, host_gpus in cards.items()
        }
        total, hosts = sum(map(len, functions.values())), sum(map(bool, functions.values()))
        memory = f", {kind.card.memory}" if kind.card and kind.card.memory else ""
        lines += [""] if position else []
        lines.append(f"  # {printable(kind.name, keep='')}{memory}: {total} on {counted(hosts, 'host')}")
        quirks = catalogue.quirks_of(kind.card) if kind.card else ()
        lines += [f"  # Note: {printable(quirk.title, keep='')}" for quirk in quirks]
        lines += _boards(kind, [function for host_gpus in functions.values() for function in host_gpus])
        match = {"vendor": kind.vendor, "product": kind.product}
        match |= dict(zip(("subsystem_vendor", "subsystem_product"), kind.subsystem, strict=False))
        inner = ", ".join(f"{key}: {json.dumps(value)}" for key, value in match.items())
        lines += [f"  {_scalar(name)}:", f"    match: {{{inner}}}"]
    return lines


def _boards(kind: _Kind, functions: Sequence[Function]) -> Iterator[str]:
    """A comment for kinds with boards of several makers: the keys that distinguish them."""
    boards = Counter(f"{f.subsystem_vendor}:{f.subsystem_product}" for f in functions if f.subsystem_product)
    if len(boards) > 1 and not kind.subsystem:
        counts = listed([f"{ids} ({count})" for ids, count in boards.most_common()], 5)
        yield f"  # Boards by subsystem id: {counts}. To distinguish them, add subsystem_vendor and"
        yield "  # subsystem_product in match."


def _hosts(models: Mapping[str, set[str]], switched: set[str], *, order: Sequence[str]) -> list[str]:
    groups = by_key(
        ((tuple(name for name in order if name in of_host), host in switched), host)
        for host, of_host in models.items()
        if of_host
    )
    plain = [(pattern, names) for (names, nvlink), hosts in groups.items() if not nvlink for pattern in fold(hosts)]
    fabric = [(pattern, names) for (names, nvlink), hosts in groups.items() if nvlink for pattern in fold(hosts)]
    lines = [
        "",
        "# The models that each host passes through. Use the host names of Ansible or SSH. Ranges are written as in an",
        "# inventory, gpu-[01:16]; patterns with * and ? need quotes.",
        "hosts:",
    ]
    for pattern, names in sorted(plain, key=lambda entry: natural(entry[0])):
        lines.append(f"  {_scalar(pattern)}: [{', '.join(map(_scalar, names))}]")
    if fabric:
        lines += [
            *([""] if plain else []),
            "  # Hosts with NVSwitches. gpustack does not prepare them until you choose the use of the switches:",
            *(f"  #   {mode.value + ':':<10}{meaning}" for mode, meaning in _NVSWITCH.items()),
        ]
    for pattern, names in sorted(fabric, key=lambda entry: natural(entry[0])):
        lines += [
            f"  {_scalar(pattern)}:",
            f"    models: [{', '.join(map(_scalar, names))}]",
            "    # options:",
            f"    #   nvswitch: {NvSwitch.FULL.value}",
        ]
    return lines


def _note(text: str, hosts: Iterable[str]) -> list[str]:
    """A comment about hosts that the spec omits."""
    if not (patterns := fold(hosts)):
        return []
    return ["", f"# {text} {printable(listed(patterns, 8), keep='')}."]


def _scalar(text: str) -> str:
    """A host pattern or a model's name, quoted where YAML would otherwise read something else."""
    return text if _PLAIN.fullmatch(text) and is_text(text) else json.dumps(text)
