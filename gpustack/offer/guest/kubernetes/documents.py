"""A YAML document with a comment, and a rendering of several."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpustack.base.findings import Finding
from gpustack.base.text import printable
from gpustack.configure import rendered

_WORD = re.compile(r"[A-Za-z$/]..")
"""The start of text that no parser takes for a number or a boolean, beside the words that PyYAML quotes."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """A document.

    :ivar notes: the lines of the comment above it.
    """

    notes: tuple[str, ...]
    content: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Rendering:
    """The documents of a form, and the findings about them."""

    documents: tuple[Document, ...]
    findings: tuple[Finding, ...]

    def to_dict(self) -> dict[str, object]:
        """The rendering as plain data for JSON."""
        return {
            "documents": [document.content for document in self.documents],
            "findings": [entry.to_dict() for entry in self.findings],
        }

    @property
    def text(self) -> str:
        """The documents as YAML."""
        return "---\n".join(_text(document) for document in self.documents)


def listed(names: Iterable[str]) -> str:
    """Names for a comment: separated by commas, in one line."""
    return printable(", ".join(dict.fromkeys(names)), keep="")


def _text(document: Document) -> str:
    return "".join(f"# {printable(line, keep='')}\n" for line in document.notes) + dumped(document.content)


def dumped(content: Mapping[str, Any]) -> str:
    """YAML for programs in Go, whose parser takes more text for numbers and booleans than PyYAML's: ``1e07``, ``y``."""
    return rendered.dumped([dict(content)], lambda text: None if _WORD.match(text) else "'")


def arguments(values: Mapping[str, str]) -> list[dict[str, str]]:
    """Arguments of a program as kubeadm lists them since v1beta4."""
    return [{"name": name, "value": value} for name, value in values.items()]


def node_labels(labels: Mapping[str, str]) -> str:
    """The value of the kubelet's option ``--node-labels``, and of the autoscaler's annotation."""
    return ",".join(f"{key}={value}" for key, value in labels.items())
