"""What the rules yield: a code, with the values of its message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpustack.base.codes import Code
from gpustack.base.findings import Severity


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A problem of an image for a flavor.

    :ivar severity: replaces that of the definition.
    :ivar values: the values of the message, except the image and the flavors.
    """

    code: Code
    severity: Severity | None = None
    values: Mapping[str, str] = field(default_factory=dict)
