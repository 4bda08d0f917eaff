"""The properties of images that gpustack sets, as changes: those whose right value follows from the spec."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from gpustack.base.findings import Code
from gpustack.changes.change import CloudChange, Value
from gpustack.cloud import Connection
from gpustack.cloud.image import OS_TYPE, WINDOWS, ImageCloud
from gpustack.offer.image.guest import guest_problems
from gpustack.offer.image.hardware import is_x86
from gpustack.offer.image.model import FIRMWARE, HIDE, MACHINE_TYPE, Pair

_OWNER = "owner"


@dataclass(frozen=True, kw_only=True)
class ImageChange(CloudChange):
    """Set or remove properties of an image: the value has these, with None for a missing one.

    The value also has the id of the image's project, which is compared only: an image that another project took over
    is left alone. Glance carries a change out completely or not at all.
    """

    kind: ClassVar[str] = "set_image_properties"
    object_kind: ClassVar[str] = "image"
    undone: ClassVar[str] = "restores the former properties if the image belongs to the same project"
    value: ClassVar[Any] = dict[str, str | None]
    written: ClassVar[tuple[str, ...]] = (MACHINE_TYPE, OS_TYPE, HIDE, FIRMWARE)

    @classmethod
    def client(cls, connection: Connection) -> ImageCloud:
        return ImageCloud(connection)

    def describe(self) -> str:
        owner = self.wanted.get(_OWNER)
        place = ", ".join(filter(None, (self.id, self.about.get("visibility"), owner and f"project {owner}")))
        return f"change {self.name} ({place}): {self.why}"

    def remaining(self, cloud: Connection) -> Self | None:
        return self if ImageCloud(cloud).image(self.id) else None

    def read(self, api: ImageCloud) -> Value:
        image = api.image(self.id)
        return None if image is None else _values({**image.properties, _OWNER: image.owner}, self.wanted)

    def obstacle(self, api: ImageCloud, made: Sequence[CloudChange]) -> str:
        """The spec may name the image by its name, which another image can have since the plan."""
        image = None if self.recorded else api.image(self.id)
        return f"its name is {image.name} since the plan" if image and image.name != self.name else ""

    def carry_out(self, api: ImageCloud) -> str:
        after = {key: value for key, value in self.wanted.items() if value != self.seen[key]}
        api.change(self.id, self.name, self.seen, after)
        return self.id


def changes(pairs: Sequence[Pair], firmware: str | None = None) -> tuple[ImageChange, ...]:
    """The changes for images and their flavors.

    A machine type other than q35 that somebody set is kept: the image may have been installed for it. Only the operator
    knows the firmware of an image.

    :param firmware: the firmware to set.
    """
    made = []
    for pair in pairs:
        image = pair.image
        wanted = _wanted(pair) | ({FIRMWARE: firmware} if firmware else {})
        if after := {key: value for key, value in wanted.items() if image.properties.get(key) != value}:
            owner = {_OWNER: image.owner}
            made.append(
                ImageChange(
                    why="its flavors need these properties",
                    id=image.id,
                    name=image.name,
                    seen=_values(image.properties, after) | owner,
                    wanted=after | owner,
                    about={"visibility": image.visibility},
                )
            )
    return tuple(made)


def former(line: Mapping[str, Any]) -> ImageChange:
    """The change in a line of a journal of 0.1.0 (``gpustack_image_journal``)."""
    owner = {_OWNER: line["owner"]} if line.get("owner") else {}
    seen, wanted = ({**line[name], **owner} for name in ("before", "after"))
    return ImageChange(why=line["why"], id=line["image"], name=line["name"], seen=seen, wanted=wanted)


def _values(properties: Mapping[str, str], keys: Mapping[str, Any]) -> dict[str, str | None]:
    return {key: properties.get(key) for key in keys}


def _wanted(pair: Pair) -> dict[str, str]:
    image, wanted = pair.image, {}
    if pair.flavors and not image.properties.get(MACHINE_TYPE) and all(is_x86(image, needs) for needs in pair.flavors):
        wanted[MACHINE_TYPE] = "q35"
    if (image.os_type or "").lower() == WINDOWS or any(needs.windows for needs in pair.flavors):
        wanted[OS_TYPE] = WINDOWS
    problems = {problem.code for needs in pair.flavors for problem in guest_problems(image, needs)}
    if Code.HYPERVISOR_VISIBLE in problems:
        wanted[HIDE] = "true"
    return wanted
