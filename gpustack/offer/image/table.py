"""Checked images as rows."""

from __future__ import annotations

from typing import Any

from gpustack.offer.image.check import Checked, listed_names
from gpustack.offer.image.model import FIRMWARE, MACHINE_TYPE

FIELDS = ("image", "id", "flavors", "os_type", "machine_type", "firmware", "findings")
COLUMNS = ("Image", "ID", "Flavors", "OS", "Machine", "Firmware", "Findings")


def described(checked: Checked) -> tuple[Any, ...]:
    """The row for programs."""
    image = checked.pair.image
    return (
        image.name,
        image.id,
        [needs.name for needs in checked.pair.flavors],
        image.os_type,
        image.properties.get(MACHINE_TYPE),
        image.properties.get(FIRMWARE),
        [finding.to_dict() for finding in checked.findings],
    )


def cells(checked: Checked) -> list[str]:
    """The row for people."""
    name, image_id, flavors, os_type, machine, firmware, _ = described(checked)
    codes = ", ".join(dict.fromkeys(finding.code.value for finding in checked.findings))
    state = codes or ("ok" if flavors else "no flavor")
    listed = listed_names(flavors) or "-"
    return [name, image_id, listed, os_type or "-", machine or "-", firmware or "-", state]
