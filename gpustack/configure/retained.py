"""Options that the operator has set to a value of their own: gpustack keeps it."""

import contextlib

from gpustack.configure.deployed import Existing
from gpustack.configure.packing import Advised
from gpustack.nova_options import releases
from gpustack.nova_options.config import Setting, foreign


def retained(existing: Existing, advice: Advised) -> Setting | None:
    """The operator's setting of an option, if its value is not the advised one.

    A setting with the advised value is rendered again: merged files contain the rendered lines without their markers.
    """
    for source in existing.sources:
        if source.serves(advice.option):
            settings = list(foreign(source.configuration.all(advice.option)))
            if settings and not same(settings[-1].value, advice):
                return settings[-1]
    return None


def number(text: str) -> float | None:
    """The value of a number option; None if oslo.config refuses it."""
    with contextlib.suppress(ValueError):
        return float(text)
    return None


def same(value: str, advice: Advised) -> bool:
    """Whether a value means the advised one to oslo.config."""
    if advice.option.kind == "bool":
        return value.lower() in releases.TRUE
    if advice.option.kind == "number":
        return number(value) == number(advice.value)
    return value == advice.value
