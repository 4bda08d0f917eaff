"""Checks of a spec's flavors beyond its schema: existing models, sizes given once, names that Nova accepts."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from gpustack.base.findings import Severity
from gpustack.spec import extra_specs as keys
from gpustack.spec.attributes import generations, same_generation
from gpustack.spec.document import MAX_LISTED, Document, Path, Problem, mapping, nearest, quoted
from gpustack.spec.flavors import named
from gpustack.spec.markers import MARKERS, RESOURCES
from gpustack.spec.memory_pages import size_kib

SIZES = ("vcpus", "ram", "disk")
_FIELDS = {
    keys.AFFINITY: ("numa", "policy"),
    keys.NUMA_NODES: ("numa", "nodes"),
    keys.CPU_POLICY: ("cpu_policy",),
    keys.PAGE_SIZE: ("mem_page_size",),
    keys.MAXPHYSADDR: ("maxphysaddr",),
    keys.HIDE: ("hide_hypervisor",),
    keys.OLD_HIDE: ("hide_hypervisor",),
    keys.SECURE_BOOT: ("secure_boot",),
    keys.TPM_VERSION: ("tpm",),
    keys.TPM_MODEL: ("tpm",),
}
"""Extra specs that have a field of their own in the spec."""
_MAX_NAME = 255
_LEAST_MIB = 256
"""Guests with a GPU, and hosts, need more: a smaller number is probably meant in GiB."""
_DOTS = (".", "..")
"""Names that HTTP clients remove from the path of an address."""


def check_flavors(document: Document) -> Iterator[Problem]:
    """The problems of a spec's flavors, in no particular order; malformed parts are left to the schema."""
    models, flavors = mapping(document.data, "models"), mapping(document.data, "flavors")
    names: dict[str, str] = {}
    ids: dict[str, str] = {}
    for name, flavor in flavors.items():
        if not isinstance(flavor, dict):
            continue
        path: Path = ("flavors", name)
        yield from _gpus(document, path, flavor, models)
        yield from _sizes(document, path, flavor)
        yield from _extra_specs(document, path, flavor)
        # Sizes of pages that Nova's API accepts, and that nova-api refuses for each instance (``string_to_bytes``).
        values: dict[Path, object] = {("mem_page_size",): flavor.get("mem_page_size")}
        values |= {("extra_specs", keys.PAGE_SIZE): mapping(flavor, "extra_specs").get(keys.PAGE_SIZE)}
        for inner, value in values.items():
            if isinstance(value, str) and re.match("[0-9]", value) and size_kib(value) is None:
                message = f"Nova refuses every instance with pages of the size {quoted(value)}"
                guess = next((g for g in (f"{value}B", value.upper()) if size_kib(g)), None)
                yield document.problem((*path, *inner), message, suggestion=guess and quoted(guess))
        yield from _name(document, path, name, flavor)
        yield from _twice(document, path, "name", name, flavor, names)
        if flavor.get("windows") is True and flavor.get("guest") == "linux":
            yield document.problem((*path, "windows"), "contradicts guest: linux", at_key=True)
        if flavor.get("id") in _DOTS:
            yield document.problem((*path, "id"), f"Nova's API can't find a flavor with the id {flavor['id']}")
        if isinstance(flavor.get("id"), str):
            yield from _twice(document, (*path, "id"), "id", flavor["id"], flavor, ids)


def _gpus(document: Document, path: Path, flavor: Mapping[str, Any], models: Mapping[str, Any]) -> Iterator[Problem]:
    if sum(key in flavor for key in ("model", "gpu", "gpus")) != 1:
        yield document.problem(path, "expected model or gpu, each with count, or gpus", at_key=True)
    elif "gpus" in flavor and "count" in flavor:
        yield document.problem((*path, "count"), "gpus contains the numbers, so omit count", at_key=True)
    requested: dict[Path, object] = {(*path, "model"): flavor.get("model")}
    requested |= {(*path, "gpus", name): name for name in mapping(flavor, "gpus")}
    for name_path, name in requested.items():
        if isinstance(name, str) and models and name not in models:
            yield document.unknown_model(name_path, name, models)
    generation = mapping(flavor, "gpu").get("generation")
    known = generations() if isinstance(generation, str) else {}
    if isinstance(generation, str) and not any(same_generation(generation, family) for family in known.values()):
        guess = nearest(generation, known.values())
        message = f"the catalogue has no generation {quoted(generation)}"
        yield document.problem((*path, "gpu", "generation"), message, suggestion=guess and quoted(guess))
    counts = flavor.get("count")
    several = counts if isinstance(counts, list) and len(counts) <= MAX_LISTED else []
    if (twice := next((number for number in several if several.count(number) > 1), None)) is not None:
        yield document.problem((*path, "count"), f"{twice} is given twice")


def _sizes(document: Document, path: Path, flavor: Mapping[str, Any]) -> Iterator[Problem]:
    share = flavor.get("per_gpu", {})
    if not isinstance(share, dict):
        return
    for size in SIZES:
        if size in flavor and size in share:
            message = f"{size} is given twice, here and in per_gpu"
            yield document.problem((*path, size), message, at_key=True)
        elif size not in flavor and size not in share:
            message = f"{quoted(size)} is missing: give it here or in per_gpu"
            yield document.problem(path, message, at_key=True)
    for inner in ((), ("per_gpu",), ("reserve",)):
        ram = mapping(flavor, *inner).get("ram")
        if type(ram) is int and 0 < ram < _LEAST_MIB:
            place, message = (*path, *inner, "ram"), f"a number without a unit is in MiB: {ram} MiB"
            yield document.problem(place, message, suggestion=f"{ram}GiB", severity=Severity.WARNING)


def _extra_specs(document: Document, path: Path, flavor: Mapping[str, Any]) -> Iterator[Problem]:
    for key, value in mapping(flavor, "extra_specs").items():
        if re.match(r"trait[^:]*:", key) and isinstance(value, str) and value not in keys.TRAIT_VALUES:
            guess = nearest(value, keys.TRAIT_VALUES)
            message = f"expected {' or '.join(keys.TRAIT_VALUES)}, found {quoted(value)}: Nova ignores or refuses it"
            yield document.problem((*path, "extra_specs", key), message, suggestion=guess and quoted(guess))
            continue
        if key == keys.ALIAS:
            message = f"gpustack derives {key} from the flavor's model and count"
        elif key.startswith(f"{RESOURCES}{MARKERS}"):
            message = f"gpustack derives {key} from the flavor's GPUs and quotas"
        elif key.startswith(keys.NAMESPACE):
            message = f"names that begin with {keys.NAMESPACE} are reserved for gpustack"
        elif key in _DOTS:
            message = f"Nova's API can't remove an extra spec called {key}"
        elif key in _FIELDS and _given(flavor, _FIELDS[key]):
            message = f"{key} is already set by {'.'.join(_FIELDS[key])}"
        else:
            continue
        yield document.problem((*path, "extra_specs", key), message, at_key=True)


def _given(flavor: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    value: Any = flavor
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value not in (None, False)


def _name(document: Document, path: Path, name: str, flavor: Mapping[str, Any]) -> Iterator[Problem]:
    for field in (name, flavor.get("id"), flavor.get("description")):
        for placeholder in re.findall(r"\{([^{}]*)\}", field) if isinstance(field, str) else ():
            if placeholder != "count":
                severity = Severity.WARNING if field is flavor.get("description") else Severity.ERROR
                message = f"{{{placeholder}}} is not a placeholder; {{count}} is the number of GPUs"
                yield document.problem(path, message, at_key=True, severity=severity)
    counts = flavor.get("count")
    several = isinstance(counts, list) and len(counts) > 1
    for key, template in (("name", name), ("id", flavor.get("id"))):
        if several and isinstance(template, str) and "{count}" not in template:
            message = f"several counts make several flavors: put {{count}} into the {key}"
            name_path = path if key == "name" else (*path, key)
            yield document.problem(name_path, message, at_key=True)
    if (odd := next((c for c in name if not _is_printable(c)), None)) is not None:
        message = f"Nova does not allow U+{ord(odd):04X} in a flavor's name"
        yield document.problem(path, message, at_key=True)
    elif len(named(name, 64)) > _MAX_NAME:
        yield document.problem(path, f"Nova allows names of up to {_MAX_NAME} characters", at_key=True)


def _is_printable(character: str) -> bool:
    """The rule of ``nova/api/validation/parameter_types.py``."""
    category = unicodedata.category(character)
    return ord(character) <= 0xFFFF and not category.startswith("C") and (category == "Zs" or category[0] != "Z")


def _twice(
    document: Document, path: Path, attribute: str, template: str, flavor: Mapping[str, Any], entries: dict[str, str]
) -> Iterator[Problem]:
    """Two entries with the same name or id after ``{count}`` is replaced."""
    counts = flavor.get("count", 1)
    entry = str(path[1])
    for count in (counts if isinstance(counts, list) else [counts])[:MAX_LISTED]:
        if "gpus" in flavor and isinstance(flavor["gpus"], dict):
            count = sum(n for n in flavor["gpus"].values() if isinstance(n, int))
        if not isinstance(count, int) or isinstance(count, bool):
            continue
        result = named(template, count)
        other = entries.setdefault(result, entry)
        if other != entry:
            message = f"makes a flavor of the same {attribute} as {quoted(other)}: {quoted(result)}"
            yield document.problem(path, message, at_key=True)
            return
