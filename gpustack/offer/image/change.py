"""The properties that gpustack sets: those whose right value follows from the spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from gpustack.base.codes import Code
from gpustack.base.operations import Operation
from gpustack.cloud.image import OS_TYPE, WINDOWS
from gpustack.offer.image.guest import guest_problems
from gpustack.offer.image.hardware import is_x86
from gpustack.offer.image.model import FIRMWARE, HIDE, MACHINE_TYPE, Pair

WRITTEN = frozenset((MACHINE_TYPE, OS_TYPE, HIDE, FIRMWARE))
"""The properties that gpustack writes; an undo changes no others."""


@dataclass(frozen=True, kw_only=True)
class SetProperties(Operation):
    """Set or remove properties of an image.

    :ivar after: the new values; None removes a property.
    :ivar before: the present values of the same properties; None for a missing one.
    :ivar owner: the id of the image's project; empty in journals of earlier versions.
    """

    kind: ClassVar[str] = "set_image_properties"
    image: str
    name: str
    after: Mapping[str, str | None]
    before: Mapping[str, str | None]
    owner: str = ""
    visibility: str = ""

    def describe(self) -> str:
        place = ", ".join(filter(None, (self.image, self.visibility, self.owner and f"project {self.owner}")))
        return f"change {self.name} ({place}): {self.why}"

    def details(self) -> list[str]:
        """The changes, one for each line."""
        return [_line(key, value, self.before[key]) for key, value in self.after.items()]

    def reverse(self) -> SetProperties:
        """The change back."""
        return SetProperties(
            why="restore the former values",
            image=self.image,
            name=self.name,
            after=self.before,
            before=self.after,
            owner=self.owner,
            visibility=self.visibility,
        )


def changes(pairs: Sequence[Pair], firmware: str | None = None) -> tuple[SetProperties, ...]:
    """The changes for images and their flavors.

    A machine type other than q35 that somebody set is kept: the image may have been installed for it. Only the operator
    knows the firmware of an image.

    :param firmware: the firmware to set.
    """
    operations = []
    for pair in pairs:
        wanted = _wanted(pair) | ({FIRMWARE: firmware} if firmware else {})
        present = pair.image.properties
        after: dict[str, str | None] = {key: value for key, value in wanted.items() if present.get(key) != value}
        if after:
            before = {key: present.get(key) for key in after}
            why = "its flavors need these properties"
            operations.append(
                SetProperties(
                    why=why,
                    image=pair.image.id,
                    name=pair.image.name,
                    after=after,
                    before=before,
                    owner=pair.image.owner,
                    visibility=pair.image.visibility,
                )
            )
    return tuple(operations)


def _wanted(pair: Pair) -> dict[str, str]:
    image, wanted = pair.image, {}
    if pair.flavors and MACHINE_TYPE not in image.properties and all(is_x86(image, needs) for needs in pair.flavors):
        wanted[MACHINE_TYPE] = "q35"
    declared = (image.os_type or "").lower() == WINDOWS or any(needs.windows for needs in pair.flavors)
    if declared:
        wanted[OS_TYPE] = WINDOWS
    problems = {problem.code for needs in pair.flavors for problem in guest_problems(image, needs)}
    if Code.HYPERVISOR_VISIBLE in problems:
        wanted[HIDE] = "true"
    return wanted


def _line(key: str, after: str | None, before: str | None) -> str:
    if after is None:
        return f"- {key} (was {before})"
    return f"+ {key} = {after}" if before is None else f"~ {key} = {after} (was {before})"
