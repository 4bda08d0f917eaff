"""The files of ``[compute] provider_config_location``, checked as in nova/compute/provider_config.py."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpustack.nova_options import tables
from gpustack.nova_options.options import Release

_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
}
_CUSTOM = "CUSTOM_"


def faults(data: object, release: Release) -> Iterator[str]:
    """The reasons why a release that reads such files refuses the data of one."""
    (record,) = (entry for entry in tables.table("providers").records if tables.holds(entry, release.major))
    meta = data.get("meta") if isinstance(data, dict) else None
    version = meta.get("schema_version") if isinstance(meta, dict) else None
    if not isinstance(version, str) or re.fullmatch(r"\d+\.\d+\n?", version) is None:
        yield 'meta: schema_version must be text such as "1.0"'
    elif version.partition(".")[0] not in record["versions"]:
        yield f"meta: Nova does not support schema_version {version}"
    else:
        faulty = list(_faults(data, record["schema"], record["schema"]["$defs"], ""))
        yield from faulty or _standard(data)


def providers(data: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The providers of valid data that add something, each with its UUID or name."""
    for provider in data.get("providers", ()) if isinstance(data, dict) else ():
        if any(additions(provider, kind) for kind in ("inventories", "traits")):
            identification = provider["identification"]
            yield identification.get("uuid") or identification.get("name"), provider


def additions(provider: Mapping[str, Any], kind: str) -> list[Any]:
    """What a provider of valid data adds to ``inventories`` or ``traits``."""
    added: list[Any] = provider.get(kind, {}).get("additional", [])
    return added


def _standard(data: object) -> Iterator[str]:
    """Nova accepts only resource classes and traits of the operator."""
    for _, provider in providers(data):
        classes = [name for inventory in additions(provider, "inventories") for name in inventory]
        for name in (*classes, *additions(provider, "traits")):
            if not name.startswith(_CUSTOM):
                yield f"{name} does not begin with {_CUSTOM}"


def _faults(value: object, schema: Mapping[str, Any], definitions: Mapping[str, Any], where: str) -> Iterator[str]:
    """The faults of a value against the part of JSON schema that Nova's schema uses."""
    schema = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    here = where or "the file"
    expected = schema.get("type")
    whole = isinstance(value, float) and value.is_integer() and expected == "integer"
    if expected and (isinstance(value, bool) or not (isinstance(value, _TYPES[expected]) or whole)):
        yield f"{here} must be of type {expected}"
    elif "not" in schema:
        yield f"{here} must not be set"
    elif "const" in schema and value != schema["const"]:
        yield f"{here} must be {schema['const']}"
    elif "oneOf" in schema and all(any(_faults(value, one, definitions, where)) for one in schema["oneOf"]):
        yield f"{here} must be a UUID or $COMPUTE_NODE"
    elif isinstance(value, str):
        length = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
        if not length or re.search(schema.get("pattern", ""), value) is None:
            yield f"{here}: {value!r} is refused"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _faults(item, schema.get("items", {}), definitions, f"{where}[{index}]")
    elif isinstance(value, dict):
        yield from _of_object(value, schema, definitions, where)


def _of_object(
    value: Mapping[Any, object], schema: Mapping[str, Any], definitions: Mapping[str, Any], where: str
) -> Iterator[str]:
    here, before = where or "the file", f"{where}." if where else ""
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    yield from (f"{here} lacks {name}" for name in schema.get("required", ()) if name not in value)
    if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
        yield f"{here} must have one of {', '.join(properties)}"
    for name, item in value.items():
        if patterns and not isinstance(name, str):
            yield f"{here}: the key {name!r} must be text"
            continue
        matching = [part for pattern, part in patterns.items() if re.search(pattern, name)]
        for part in ([properties[name]] if name in properties else []) + matching:
            yield from _faults(item, part, definitions, f"{before}{name}")
        if name not in properties and not matching and not schema.get("additionalProperties", True):
            yield f"{here} can't have {name}"
