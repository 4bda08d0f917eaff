"""The reference of ``gpustack.yaml`` in Markdown, generated from its schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gpustack.spec.document import MAX_BYTES, MAX_DEPTH, MAX_NODES
from gpustack.spec.load import keys
from gpustack.spec.patterns import MAX_HOSTS
from gpustack.spec.schema import resolve, schema

Node = dict[str, Any]

EXAMPLE = """\
version: 1
models:
  k4200:
    match: {vendor: "10de", product: "11b4"}
  m60:
    match: {vendor: "10de", product: "13f2"}
hosts:
  gpu-[01:16].example.org: [k4200]
  gpu-17.example.org:
    models: [k4200, m60]
    options: {iommu_pt: false}
nova: {release: "2025.2"}
flavors:
  "g1.k4200.{count}":
    model: k4200
    count: [1, 2, 4]
    per_gpu: {vcpus: 8, ram: 32GiB, disk: 40GiB}
"""

_INTRO = f"""\
# The spec: gpustack.yaml

One YAML file describes the desired state. A complete one can be as short as this:

```yaml
{EXAMPLE.rstrip()}
```

`gpustack spec init` writes a first spec from a scan, and `gpustack spec check` reports all problems of a spec.
`gpustack spec schema` prints its JSON schema, with which editors complete and check it:

```yaml
# yaml-language-server: $schema=gpustack.schema.json
```

Write ids and addresses in quotes. Without them, YAML reads `1184` and `0x11b4` as numbers, and `0000:08:00.0` as a time
of day in seconds.
"""

_RULES = f"""\
## Host names and patterns

| pattern | matches |
|---|---|
| `gpu-01.example.org` | the host with this name |
| `gpu-[01:16]` | `gpu-01` to `gpu-16`: with a leading zero, both ends must have the same width |
| `gpu-[1:16]` | `gpu-1` to `gpu-16` |
| `gpu-[01:16:2]` | `gpu-01`, `gpu-03`, … `gpu-15` |
| `rack-[a:f]` | `rack-a` to `rack-f` |
| `"*.example.org"` | every name with this end; `*` matches any characters, and needs quotes at the beginning |
| `gpu-0?` | `gpu-00` to `gpu-09`, `gpu-0a`, …: `?` matches exactly one character |

gpustack compares patterns with the exact, case-sensitive name of the host in the inventory, on the command line, or in
the snapshot. `gpu01` and `gpu01.example.org` are two names; `gpu01*` matches both.

A host that matches several patterns passes through the models of all of them. Options of later sources override those
of earlier ones, in this order: the spec, the patterns in the order of the file, the host's plain name.

## The model of a card

A model matches a card if all keys of its `match` do. If two models match, the more specific one applies: beside a
general model, another model can match boards of one `subsystem_product`, or the cards at some `addresses`.
Two models that match the same card are an error if neither is more specific.
A host passes through only cards of its own models. A card of a more specific model that the host does not list is
reserved for the host.

## Limits

A spec is one YAML document of at most {MAX_BYTES >> 10} KiB, nested at most {MAX_DEPTH} levels deep, with at most \
{MAX_NODES:,} values after aliases are expanded.
Anchors, aliases and merge keys (`<<`) are supported, tags are not. A duplicate key is an error. The ranges of a pattern
expand to at most {MAX_HOSTS:,} hosts.
"""


def markdown() -> str:
    """The complete reference."""
    return "\n".join([_INTRO, *_section("", schema(), "The file"), _RULES])


def _section(path: str, node: Node, title: str) -> Iterator[str]:
    """A mapping's keys as a table, then its nested mappings as sections."""
    node = resolve(node)
    yield f"## {title}\n"
    yield f"{_code(node['description'])}\n"
    yield "| key | value | default | meaning |"
    yield "|---|---|---|---|"
    for key in keys(node):
        entry = resolve(node["properties"][key])
        required = "required" if key in node.get("required", ()) else _default(entry)
        yield f"| `{key}` | {_value(entry)} | {required} | {_cell(entry.get('description', ''))} |"
    yield ""
    for key in keys(node):
        entry = node["properties"][key]
        below = f"{path}{key}"
        resolved = resolve(entry)
        if "properties" in resolved and not path.endswith("HOST."):
            yield from _section(f"{below}.", entry, f"`{below}`")
        elif long_form := [form for form in resolved.get("anyOf", ()) if "properties" in resolve(form)]:
            yield from _section(f"{below}.", long_form[0], f"`{below}`")
        elif "properties" in resolve(entries := resolved.get("items", {})):
            yield from _section(f"{below}.", entries, f"An entry of `{below}`")
        elif isinstance(free := resolved.get("additionalProperties"), dict):
            placeholder = key.removesuffix("s").upper()
            for mapping in free.get("anyOf", [free]):
                if "properties" in resolve(mapping):
                    yield from _section(f"{below}.{placeholder}.", mapping, f"`{below}.{placeholder}`")


def _default(entry: Node) -> str:
    return f"`{json.dumps(entry['default'])}`" if "default" in entry else ""


def _value(entry: Node) -> str:
    """A short description of a value's form."""
    if "enum" in entry:
        return " or ".join(f"`{word}`" for word in entry["enum"])
    if "const" in entry:
        return f"`{entry['const']}`"
    if any("properties" in resolve(form) for form in entry.get("anyOf", ())):
        return "number or mapping"
    if "anyOf" in entry and "examples" in entry:
        return "number, or " + " or ".join(f"`{_yaml(example)}`" for example in entry["examples"])
    if "examples" in entry:
        return f"text, like `{json.dumps(entry['examples'][0])}`"
    if entry.get("type") == "array":
        return f"list of {_value(resolve(entry['items']))}"
    words = {"boolean": "`true` or `false`", "object": "mapping", "integer": "number"}
    return words.get(entry.get("type", ""), "text")


def _yaml(example: object) -> str:
    return example if isinstance(example, str) else json.dumps(example)


def _code(text: str) -> str:
    return text.replace("``", "`")


def _cell(text: str) -> str:
    return _code(text).replace("|", "\\|")
