"""Schemas of what Kubernetes and its tools read: kubernetes-validate for its own kinds, own excerpts for the others."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate  # type: ignore[import-untyped]
import yaml

FREE = ("labels", "nodeLabels", "nodeSelector", "matchLabels", "requests", "limits", "hard")
"""Mappings whose keys are free."""
KUBERNETES = "1.37"


@functools.cache
def schemas() -> Mapping[str, Any]:
    """The excerpts, by ``apiVersion kind``."""
    text = Path(__file__).with_name("kubernetes-schemas.yaml").read_text(encoding="utf-8")
    read: Mapping[str, Any] = yaml.safe_load(text)
    return read


def validate(document: Mapping[str, Any], form: str | None = None) -> None:
    """Check a document strictly.

    :param form: the excerpt of a document without ``kind``.
    :raises ValueError: when it does not conform.
    """
    name = form or f"{document.get('apiVersion')} {document.get('kind')}"
    try:
        if name in schemas():
            jsonschema.Draft202012Validator(schemas()[name]).validate(document)
        else:
            kubernetes_validate.validate(dict(document), KUBERNETES, strict=True)
    except Exception as error:  # each validator has classes of its own
        raise ValueError(f"{name}: {error}") from error


def unnoticed(document: Mapping[str, Any], form: str | None = None) -> list[str]:
    """The keys of a document that could be misspelt without an error; none if the schema is strict."""
    accepted = []
    for path, changed in _misspelt(document):
        try:
            validate(changed, form)
        except ValueError:
            continue
        accepted.append(path)
    return accepted


def _misspelt(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The document with one misspelt key, for each of its keys."""
    for path in _paths(document):
        changed: Any = copy.deepcopy(document)
        parent = changed
        for step in path[:-1]:
            parent = parent[step]
        parent[f"{path[-1]}x"] = parent.pop(path[-1])
        yield ".".join(map(str, path)), changed


def _paths(node: object, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            if not place or place[-1] not in FREE:
                yield (*place, key)
            yield from _paths(value, (*place, key))
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from _paths(value, (*place, number))
