"""Checks across configurations: aliases of API and compute hosts, and devices for each alias."""

import functools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.configure.lint.subject import AliasLine, DeviceLine, LintSubject, check
from gpustack.configure.sources import Source
from gpustack.hosts.facts.gpus import gpus
from gpustack.hosts.facts.model import Function, Host
from gpustack.hosts.readiness.assessment import State
from gpustack.nova_options.device_spec import ANY, matched
from gpustack.nova_options.pci_values import is_true, reported_class, resource_class, traits
from gpustack.spec.verdict import HostVerdicts, verdicts

VF = "type-VF"


@check("Aliases of the spec")
def expected(subject: LintSubject) -> Iterator[Finding]:
    """nova-api and every nova-compute need the alias of each model in the spec."""
    for source in subject.serving("api", "compute"):
        for name in sorted(subject.expected - {line.name for line in subject.aliases_of(source)}):
            yield finding(Code.ALIAS_OF_SPEC_MISSING, place=source.label, alias=name)


@check("API and computes agree")
def agree(subject: LintSubject) -> Iterator[Finding]:
    """Aliases must be the same on the API and on every compute host."""
    readers = [*subject.serving("api"), *(s for s in subject.serving("compute") if "api" not in s.services)]
    if not readers:
        return
    reference, *others = readers
    for other in others:
        yield from _compared(subject, reference, other)


def _compared(subject: LintSubject, reference: Source, other: Source) -> Iterator[Finding]:
    reference_aliases, aliases = _by_name(subject.aliases_of(reference)), _by_name(subject.aliases_of(other))
    for name, lines in aliases.items():
        if name not in reference_aliases:
            yield from _missing(lines[0], reference)
        elif difference := _difference(reference_aliases[name], lines):
            about: dict[str, Any] = {"other": reference_aliases[name][0].place, "difference": difference}
            yield finding(Code.ALIASES_DIFFER, place=lines[0].place, alias=name, **about)
    for name, lines in reference_aliases.items():
        if name not in aliases:
            yield from _missing(lines[0], other)


def _missing(line: AliasLine, source: Source) -> Iterator[Finding]:
    """An alias that a configuration lacks. One of the operator may be in a file beside gpustack's drop-in."""
    if line.setting.ours or source.configuration.overrides or not source.is_rendered:
        grave = None if source.named else Severity.WARNING  # its services are not certain
        yield finding(Code.ALIAS_MISSING, place=line.place, severity=grave, alias=line.name, other=source.label)


def _by_name(lines: Sequence[AliasLine]) -> dict[str, list[AliasLine]]:
    return by_key((line.name, line) for line in lines)


def _difference(reference: Sequence[AliasLine], compared: Sequence[AliasLine]) -> str | None:
    expected, actual = ([_normal(line.data) for line in lines] for lines in (reference, compared))
    if len(expected) == len(actual) == 1:
        (there,), (here,) = expected, actual
        keys = [key for key in sorted({*there, *here}) if there.get(key) != here.get(key)]
        texts = (f"{key} is {here.get(key, 'missing')} here and {there.get(key, 'missing')} there" for key in keys)
        return "; ".join(texts) or None
    alike = {frozenset(d.items()) for d in expected} == {frozenset(d.items()) for d in actual}
    return None if alike else "their lines differ"


def _normal(alias: Mapping[str, Any]) -> dict[str, str]:
    normal = {key: str(value).strip() for key, value in alias.items() if key not in ("name", "capability_type")}
    normal["numa_policy"] = normal.get("numa_policy") or "legacy"
    for key in ("vendor_id", "product_id"):
        if key in normal:
            normal[key] = normal[key].lower()
    if "live_migratable" in normal:
        normal["live_migratable"] = str(is_true(normal["live_migratable"]))
    return normal


@check("A device for each alias")
def satisfiable(subject: LintSubject) -> Iterator[Finding]:
    """Aliases without a matching device here. Another host may have one, so only a contradiction is a warning."""
    if not subject.serving("compute"):
        return
    for alternatives in _by_name(subject.aliases).values():
        # Each compute host has the aliases of all, so most lines are equal.
        different = {json.dumps(line.data, sort_keys=True): line for line in alternatives}.values()
        if any(_can(subject, other, entry) for other in different for entry in subject.devices):
            continue
        line = alternatives[0]
        wanted = resource_class(line.data.get("resource_class")) if subject.scheduled_by_placement else None
        has_ids = "vendor_id" in line.data and "product_id" in line.data
        fitting = [entry for entry in subject.devices if has_ids and _ids_fit(line, entry)]
        having = _having(subject, line)
        if wanted and fitting and all(_class_of(entry) != wanted for entry in subject.devices):
            yield finding(Code.RESOURCE_CLASS_UNREPORTED, place=line.place, alias=line.name, resource_class=wanted)
        elif fitting:
            why = "where the ids fit, resource class, traits or live_migratable do not"
            yield finding(Code.ALIAS_UNSATISFIED, place=line.place, alias=line.name, why=why)
        elif having:
            yield finding(
                Code.ALIAS_UNSATISFIED, place=line.place, alias=line.name, why=f"{', '.join(having)} has such a card"
            )
        else:
            yield finding(Code.ALIAS_OF_OTHER_HOSTS, place=line.place, alias=line.name)


def _having(subject: LintSubject, line: AliasLine) -> list[str]:
    """The hosts that have such a card for instances, and whose configuration is being checked."""
    ids = tuple(str(line.data.get(key, "")).lower() for key in ("vendor_id", "product_id"))
    of_one_host = [hosts for source in subject.serving("compute") if len(hosts := subject.hosts_of(source)) == 1]
    functions = [(host, f) for (host,) in of_one_host for gpu in gpus(host) for f in (gpu.main, *gpu.virtual)]
    is_part = line.data.get("device_type") in (None, VF)
    fitting = ((h, f) for h, f in functions if (f.vendor, f.product) == ids and (is_part or not f.physical_function))
    return [*dict.fromkeys(host.hostname for host, f in fitting if not _is_withheld(verdicts(subject.spec, host), f))]


def _is_withheld(judged: HostVerdicts, function: Function) -> bool:
    """Whether `nova render` withholds a function: its GPU is out of service, blocked, or not completely read."""
    if (verdict := judged.by_address.get(function.address)) is None or verdict.address != function.address:
        return False
    return verdict.out_of_service is not None or verdict.state in (State.BLOCKED, State.UNKNOWN)


def _can(subject: LintSubject, line: AliasLine, entry: DeviceLine) -> bool:
    if entry.spec is None or not _ids_fit(line, entry):
        return False
    if is_true(line.data.get("live_migratable")) and not is_true(entry.data.get("live_migratable")):
        return False
    if subject.scheduled_by_placement is None:
        return True
    required, offered = traits(line.data), traits(entry.data)
    wanted, provided = resource_class(line.data.get("resource_class")), _class_of(entry)
    return required <= offered and (wanted is None or provided is None or wanted == provided)


def _ids_fit(line: AliasLine, entry: DeviceLine) -> bool:
    if (spec := entry.spec) is None:
        return False
    if spec.devname:
        return True
    vendor, product = (str(line.data.get(key, "")).lower() for key in ("vendor_id", "product_id"))
    return (not vendor or spec.vendor_id in (ANY, vendor)) and (not product or spec.product_id in (ANY, product))


def _class_of(entry: DeviceLine) -> str | None:
    """The resource class of an entry's devices; None when it depends on their ids."""
    name, spec = entry.data.get("resource_class"), entry.spec
    return resource_class(name) if spec is None else reported_class(name, spec.vendor_id, spec.product_id)


@check("Device types")
def device_types(subject: LintSubject) -> Iterator[Finding]:
    """Aliases whose device_type differs from that of the hosts' cards and virtual functions."""
    computes = by_key((id(host), source) for source in subject.serving("compute") for host in subject.hosts_of(source))
    mismatches = functools.cache(functools.partial(_mismatches, subject, computes))
    for line in subject.aliases:
        device_type = str(line.data.get("device_type") or "")
        ids = tuple(str(line.data.get(key, "")).lower() for key in ("vendor_id", "product_id"))
        for kind, hosts in mismatches(device_type, ids).items() if all(ids) else ():
            asked = device_type or "no device type"
            about: dict[str, Any] = {"asked": asked, "ids": ":".join(ids), "hosts": hosts, "actual": kind}
            yield finding(Code.ALIAS_DEVICE_TYPE_WRONG, place=line.place, alias=line.name, **about)


def _mismatches(
    subject: LintSubject, computes: Mapping[int, Sequence[Source]], device_type: str, ids: tuple[str, ...]
) -> dict[str, str]:
    """The hosts whose cards with these ids have another device type, by that type.

    :param computes: the configurations of nova-compute, by the id of the host's object.
    """
    mismatches: dict[str, dict[str, None]] = {}
    for host in subject.hosts:
        kinds = _kinds(host, ids)
        if len(kinds) > 1:  # cards and their virtual functions have the same ids: device_spec decides
            lines = [line for source in computes.get(id(host), ()) for line in subject.devices_of(source)]
            kinds = _kinds(host, ids, matched([line.spec for line in lines if line.spec], host) or None)
        if not kinds.keys() & {device_type or "type-PCI"} and not (device_type == VF and any(kinds.values())):
            for kind in sorted(kinds):
                mismatches.setdefault(kind, {})[host.hostname] = None
    return {kind: ", ".join(hosts) for kind, hosts in mismatches.items()}


def _kinds(host: Host, ids: tuple[str, ...], listed: Collection[str] | None = None) -> dict[str, bool]:
    """The device types of a host's GPUs and virtual functions with these ids.

    The value is whether a card has no virtual functions yet: those to come often have its own ids.

    :param listed: the only addresses that count; None for all.
    """
    kinds: dict[str, bool] = {}
    for gpu in gpus(host):
        for part in (gpu.main, *gpu.virtual):
            if (part.vendor, part.product) == ids and (listed is None or part.address in listed):
                kinds[part.dev_type] = part is gpu.main and bool(part.sriov_totalvfs) and not gpu.virtual
    return kinds
