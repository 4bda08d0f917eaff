"""The keys ``vfs`` and ``vgpu``: virtual functions that are created at each boot, and vGPUs of the host driver."""

import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import BeforeValidator, Field

from gpustack.spec.fields import Hex4, SpecSection, integer, matching

TYPE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}$"
CLASS_PATTERN = r"^(VGPU|CUSTOM_[A-Z0-9_]{1,248})$"
PROFILE_PATTERN = r"^[1-9]g\.[1-9][0-9]{0,3}gb([+-][a-z.]{1,8})?$"
DEFAULT_CLASS = "VGPU"
_SIZES = re.compile(r"-(?:([1-9])-)?([0-9]+)[A-Z]+$")
MOST = 256
"""The largest number of virtual functions of a card."""
Number = Annotated[int, integer(1, MOST, f"a number of virtual functions from 1 to {MOST}")]


class VirtualFunctions(SpecSection):
    """The virtual functions of each card of a model."""

    count: Number
    """The number of virtual functions of each card."""
    product: Annotated[Hex4 | None, Field(examples=["10ca"])] = None
    """PCI product id of the virtual functions, in quotes. The default is the product id of the card."""
    vgpu_type: Annotated[int | None, Field(strict=True, ge=1, le=65535)] = None
    """The vGPU type of each virtual function, by its number in `nvidia/creatable_vgpu_types`; required for cards on NVIDIA's host driver."""  # noqa: E501


def _long_form(entry: object) -> object:
    """The long form ``{count: 4}`` of ``4``."""
    return {"count": entry} if isinstance(entry, int) and not isinstance(entry, bool) else entry


Vfs = Annotated[VirtualFunctions, BeforeValidator(_long_form, json_schema_input_type=Number | VirtualFunctions)]


class Vgpu(SpecSection):
    """The vGPUs of each card of a model. The facts of a host decide how its driver creates them."""

    type: Annotated[str, matching(TYPE_PATTERN, "the name of a vGPU type, without its brand", "A16-8Q")]
    """The name of the type, without the word before it (`A16-8Q` of `NVIDIA A16-8Q`), because its number changes with releases of the driver; or the directory of a type of mediated devices (`i915-GVTg_V5_4`)."""  # noqa: E501
    count: Number | None = None
    """The number of vGPUs of each card. The default is as many as the driver creates."""
    mig: Annotated[str | None, matching(PROFILE_PATTERN, "a profile of GPU instances", "1g.10gb")] = None
    """The profile of the GPU instances (MIG) that types such as `A100-1-10C` need. They are created at each boot, one for each vGPU; smaller vGPUs of one type share one (`DC-1-8Q` in `1g.24gb+gfx`)."""  # noqa: E501
    resource_class: Annotated[
        str, matching(CLASS_PATTERN, "VGPU or a class with the prefix CUSTOM_", "CUSTOM_A16_8Q")
    ] = DEFAULT_CLASS
    """The resource class of mediated devices of this type in Placement. For virtual functions, see `resource_class` of the model."""  # noqa: E501


def slices(type_name: str) -> str | None:
    """The number of slices of a GPU instance that a type needs: 1 for ``A100-1-10C``; None for types without MIG."""
    match = _SIZES.search(type_name)
    return match[1] if match else None


def memory(type_name: str) -> int | None:
    """The memory in a type's name, in GiB: 8 for ``A16-8Q``; None for types without it."""
    match = _SIZES.search(type_name)
    return int(match[2]) if match else None


def apart(vgpus: Iterable[Vgpu | None]) -> str:
    """Why models that match the same card can't share it; empty if they can.

    :param vgpus: those of each model, None for a model without them.
    """
    given = tuple(vgpus)
    known = [vgpu for vgpu in given if vgpu is not None]
    if len(known) != len(given):
        return "a host passes them through, or shares them once"
    if not all(vgpu.count for vgpu in known):
        return "several types of vGPUs on one card need a count each"
    return (
        "" if len({vgpu.mig is None for vgpu in known}) == 1 else "a card has MIG mode for all its vGPUs, or for none"
    )
