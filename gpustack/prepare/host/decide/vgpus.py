"""vGPUs by the name of their type: what is missing on a card, and what instances would lose.

A card without its type, or without room for it, is left out with the reason; the others of the host are prepared.
"""

import json
import re
from collections.abc import Iterator

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.text import counted, listed
from gpustack.hosts.facts.model import Function, Host
from gpustack.hosts.facts.vgpu_model import USER_UNKNOWN, VgpuType
from gpustack.hosts.facts.vgpus import driver_fault, framework, number_at_boot, type_named
from gpustack.hosts.readiness.assessment import boot_record
from gpustack.spec.assignment import Shared
from gpustack.spec.models import Vgpu

_DEFINITION = re.compile(r"/etc/mdevctl\.d/([^/]+)/([^/]+)")
_SHOWN = 8


def arguments(entry: Shared, vgpu: Vgpu) -> tuple[str, ...]:
    """The arguments of a card in the script: address, expected ids, number or ``-``, type, profile or ``-``."""
    card, several = entry.function, (str(entry.first),) if entry.first or entry.is_mixed else ()
    own = (card.address, card.vendor, card.product, str(entry.limit or "-"), vgpu.type, vgpu.mig or "-")
    return (*own, *several, *(("mixed",) if entry.is_mixed else ()))


def with_mig(script: str) -> list[str]:
    """The addresses of the cards whose MIG mode a script enables."""
    return list(dict.fromkeys(re.findall(r"^share (\S+)(?: \S+){4} [0-9]+g\.", script, re.MULTILINE)))


def fault(host: Host, entry: Shared, vgpu: Vgpu) -> str | None:
    """The difference of a card's vGPUs from the spec; None if they are as planned."""
    mig = entry.function.mig
    if vgpu.mig is not None and mig is not None and mig.current is False:
        return f"its MIG mode {'waits for a reset' if mig.pending else 'is off'}"
    if vgpu.mig is not None and mig is not None and mig.instances == ():
        return f"it has no GPU instance, and {vgpu.type} needs {vgpu.mig}"
    if entry.fault is not None:
        return entry.fault
    needed = entry.limit or 1
    if framework(host, entry.function) == "mdev":
        number, name = _possible(host, entry, vgpu), vgpu.type
        return None if number >= needed else f"vGPUs of the type {name} that it can create: {number} of {needed}"
    parts = _functions(host, entry)
    typed = [part for part in parts if entry.has_type(part)]
    if len(typed) >= needed:
        return None
    current, before = str(entry.vgpu_type), number_at_boot(host, entry.function, vgpu.type)
    text = f"{len(typed)} of {counted(needed, 'virtual function')} with the vGPU type {vgpu.type}"
    if before not in (None, current):
        text += f": its number is {current}, and was {before}"
    others = {part.vgpu_type for part in parts if part.vgpu_type is not None} - {current, before}
    return f"{text}; others have the number {', '.join(sorted(others))}" if others else text


def needs_boot(host: Host, entry: Shared, vgpu: Vgpu) -> bool:
    """Whether the next boot may correct a fault: the unit has not tried the card, or the MIG mode waits for a reset."""
    wanted = arguments(entry, vgpu)
    is_tried = f"{wanted[0]} wants {' '.join(wanted[1:])}" in boot_record(host)
    mig = entry.function.mig
    waits = vgpu.mig is not None and mig is not None and mig.current is False and mig.pending is True
    can_create = framework(host, entry.function) is not None or driver_fault(host, entry.function) is None
    return entry.is_created and can_create and (waits or not is_tried)


def findings(host: Host, entry: Shared, vgpu: Vgpu) -> Iterator[Finding]:
    """Cards that are left out, and vGPUs of instances or of others."""
    place, reason = host.at(entry.address), fault(host, entry, vgpu)
    if reason is not None and not needs_boot(host, entry, vgpu):
        yield finding(Code.VGPU_CARD_LEFT_OUT, place=place, wanted=f"model {entry.model}", reason=reason)
    if framework(host, entry.function) == "mdev" and _lacks_mdevctl(host):
        yield finding(Code.MDEVCTL_MISSING, place=host.hostname)
    parts = _functions(host, entry)
    used = {d.uuid: d.user for part in parts for d in part.mediated_devices if d.user not in (None, USER_UNKNOWN)}
    foreign = [f"{uuid} ({user})" for uuid, user in used.items() if "instance " not in (user or "")]
    foreign += [f"{path} (mdevctl starts it at boot)" for path in defined(host, {part.address for part in parts})]
    if foreign:
        yield finding(Code.MEDIATED_DEVICES_OF_OTHERS, place=place, devices=listed(foreign, _SHOWN))


def _lacks_mdevctl(host: Host) -> bool:
    """Whether libvirt is installed without mdevctl. Older facts do not show it, nor does libvirt in a container."""
    return "mdevctl" not in host.boot.tools and not {"libvirtd", "virtqemud"}.isdisjoint(host.boot.tools)


def defined(host: Host, parents: set[str]) -> Iterator[str]:
    """The definitions from which mdevctl creates a device of some functions at boot (mdevctl(8)), by path."""
    for path, file in sorted(host.files.items()):
        match = _DEFINITION.fullmatch(path)
        if match is not None and match[1] in parents and _starts(file.text):
            yield path


def _starts(text: str) -> bool:
    """Whether mdevctl starts a device at boot; True if the definition can't be parsed."""
    try:
        return bool(json.loads(text).get("start") == "auto")
    except (ValueError, AttributeError, RecursionError):
        return True


def _functions(host: Host, entry: Shared) -> tuple[Function, ...]:
    """The functions on which the driver creates vGPUs."""
    return (entry.function,) if entry.function.vgpu_framework == "mdev" else entry.parts(host)


def _possible(host: Host, entry: Shared, vgpu: Vgpu) -> int:
    """The number of mediated devices of the type that a card has, or can have."""
    pairs = [(part, type_named(host, part, vgpu.type)) for part in _functions(host, entry)]
    kinds = [(part, kind) for part, kind in pairs if isinstance(kind, VgpuType)]
    total = sum((k.available or 0) + sum(d.type == k.number for d in part.mediated_devices) for part, k in kinds)
    return min([total, *(kind.of_card for _, kind in kinds if kind.of_card)])
