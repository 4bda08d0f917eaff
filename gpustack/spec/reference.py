"""The reference of ``gpustack.yaml`` in Markdown, generated from its schema.

``python -m gpustack.spec.reference`` prints it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from gpustack.spec.document import MAX_BYTES, MAX_DEPTH, MAX_NODES
from gpustack.spec.expected import keys
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

One YAML file says what is wanted. Without comments, a whole one can be as short as this:

```yaml
{EXAMPLE.rstrip()}
```

`gpustack spec init` writes a first one from what a scan finds, `gpustack spec check` says all that is wrong with one,
and `gpustack spec schema` prints its JSON schema, by which editors complete and check it while it is written:

```yaml
# yaml-language-server: $schema=gpustack.schema.json
```

Ids and addresses belong in quotes: without them, YAML reads `1184` as a number, `0x11b4` as another, and
`0000:08:00.0` as a time of day in seconds.
"""

_RULES = f"""\
## Host names and patterns

| pattern | stands for |
|---|---|
| `gpu-01.example.org` | the host of that name |
| `gpu-[01:16]` | `gpu-01` to `gpu-16`: a leading zero keeps the width, and both ends have the same |
| `gpu-[1:16]` | `gpu-1` to `gpu-16` |
| `gpu-[01:16:2]` | `gpu-01`, `gpu-03`, … `gpu-15` |
| `rack-[a:f]` | `rack-a` to `rack-f` |
| `"*.example.org"` | every name that ends so; `*` stands for any run of characters, in quotes at the beginning |
| `gpu-0?` | `?` stands for exactly one character |

A host is looked up by the very name under which it is reached, letter by letter: its name in the inventory, on the
command line, or in the snapshot. `gpu01` and `gpu01.example.org` are two names; `gpu01*` fits both.

A host that fits several patterns gives the models of all of them. Options go from the general to the particular:
those of the spec, then those of patterns in the order of the file, then those of the host's plain name.

## Which model a card is of

All that a `match` gives must fit the card. Where two models fit, the card is of the one that asks more: beside a
general model, another one can stand for boards of one `subsystem_product`, or for the cards at some `addresses`.
Two models that fit the same card and of which neither asks more are an error.
A host gives away only cards of the models that it names: a card of a more particular model that it does not name
stays with the host.

## Limits

A spec is one YAML document of at most {MAX_BYTES >> 10} KiB, nested at most {MAX_DEPTH} levels deep, with at most \
{MAX_NODES:,} values, counted as aliases would expand.
Anchors, aliases and merge keys (`<<`) work; tags don't. A key that is given twice is an error. A pattern stands for
at most {MAX_HOSTS:,} hosts, unless by `*` or `?`.
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


if __name__ == "__main__":
    sys.stdout.write(markdown())
