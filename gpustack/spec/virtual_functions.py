"""The key ``vfs`` of the spec's models and networks: virtual functions (SR-IOV) that are created at each boot."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from gpustack.spec.fields import Hex4, SpecSection

MOST = 256
"""The largest number of virtual functions of a card."""
Number = Annotated[
    int,
    Field(
        strict=True,
        ge=1,
        le=MOST,
        json_schema_extra={"patternErrorMessage": f"expected a number of virtual functions from 1 to {MOST}"},
    ),
]


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
