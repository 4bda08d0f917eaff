"""The facts about vGPUs of a function: types, mediated devices, GPU instances."""

import re
from typing import Annotated, Any

from pydantic import Field

from gpustack.hosts.facts.fields import FactsModel, Line, Number, TypeNumber

MOST_TYPES = 4096
"""Maximum number of vGPU types of a function, and of its mediated devices."""
USER_UNKNOWN = "its users are unknown"
"""The user of a mediated device if the collector could not inspect all processes."""


class VgpuType(FactsModel):
    """A type of vGPU that the driver of a card supports.

    :ivar number: the driver's number: ``711``, or the directory of a type of mediated devices: ``nvidia-63``.
    :ivar name: the driver's name: ``NVIDIA A16-8Q``.
    :ivar available: the number that the driver can still create; None for virtual functions.
    :ivar of_card: the largest number on a card with all its virtual functions, each of which may offer one.
    """

    number: TypeNumber
    name: Line | None = None
    available: Number | None = None
    memory_mib: Number | None = None
    of_card: Number | None = None


class MediatedDevice(FactsModel):
    """An active mediated device.

    :ivar type: the number of its type: ``nvidia-63``.
    :ivar user: the instance or process that uses it, or the reason why users are unknown; None if there is none.
    """

    uuid: Line
    type: Line | None = None
    user: Line | None = None


class Domain(FactsModel):
    """A domain of libvirt, running or not, by its uuid: that of its instance.

    :ivar devices: the uuids of its mediated devices, and the addresses of its virtual functions.
    """

    uuid: Line
    devices: Annotated[tuple[Line, ...], Field(max_length=MOST_TYPES)] = ()


class MigInstance(FactsModel):
    """A GPU instance of a card in MIG mode: its profile (``1g.10gb``) and its place (``4:1``)."""

    profile: Line | None = None
    placement: Line | None = None


class Mig(FactsModel):
    """Multi-Instance GPU: the mode, the mode after the next reset, and the GPU instances; None if unknown."""

    current: bool | None = None
    pending: bool | None = None
    instances: Annotated[tuple[MigInstance, ...], Field(max_length=64)] | None = None


_OLDER = frozenset({"mediated", "mediated_types", "mig_instances"})
_ON_FUNCTION = "vGPU type "
_NUMBER_AND_NAME = re.compile(r"([^ ()]+)(?: \((.*)\))?")


def from_older(data: Any) -> Any:  # noqa: ANN401 - data of any kind, which the fields validate
    """The facts of a function with the present keys, instead of those of older collectors."""
    if not isinstance(data, dict) or _OLDER.isdisjoint(data):
        return data
    new: dict[str, Any] = {key: value for key, value in data.items() if key not in _OLDER}
    lists = (data.get(key) for key in ("mediated", "mediated_types"))
    active, kinds = (given if isinstance(given, list | tuple) else () for given in lists)
    if devices := [{"uuid": text, "user": USER_UNKNOWN} for text in active if not _on_function(text)]:
        new |= {"vgpu_framework": "mdev", "mediated_devices": devices}
    if texts := [text for text in active if _on_function(text)]:
        new |= {"vgpu_framework": "vfio", "vgpu_type": texts[0].removeprefix(_ON_FUNCTION)}
    found = (_NUMBER_AND_NAME.fullmatch(text) for text in kinds if isinstance(text, str))
    if types := [{"number": match[1], "name": match[2]} for match in found if match is not None]:
        new |= {"vgpu_framework": "mdev", "vgpu_types": types}
    if isinstance(number := data.get("mig_instances"), int):
        new["mig"] = {"instances": [{}] * min(number, 64)}
    return new


def _on_function(text: object) -> bool:
    return isinstance(text, str) and text.startswith(_ON_FUNCTION)
