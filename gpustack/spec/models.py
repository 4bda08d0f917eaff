"""The section ``models`` of ``gpustack.yaml``: kinds of GPUs and the PCI functions that they match.

The keys ``vfs`` and ``vgpu``: virtual functions that are created at each boot, and vGPUs of the host driver.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, StrictBool

from gpustack.pci.address import Address
from gpustack.spec.fields import Hex4, Name, NumaPolicy, SpecSection, described, integer, matching
from gpustack.spec.flavors import Gib, Trait

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


ADDRESS_PATTERN = r"^([0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[01][0-9A-Fa-f]\.[0-7]$"

Bdf = Annotated[
    str,
    AfterValidator(lambda text: str(Address.parse(text))),
    described(ADDRESS_PATTERN, "a PCI address in quotes (domain:bus:device.function)", "0000:88:00.0"),
]


class Match(SpecSection):
    """The PCI functions of a model. All given keys must match."""

    vendor: Annotated[Hex4, Field(examples=["10de"])]
    """PCI vendor id, four hexadecimal digits in quotes (`"10de"` is NVIDIA)."""
    product: Annotated[Hex4, Field(examples=["11b4"])]
    """PCI product (device) id, four hexadecimal digits in quotes."""
    subsystem_vendor: Annotated[Hex4 | None, Field(examples=["10de"])] = None
    """PCI subsystem vendor id, to distinguish boards of several makers with the same chip."""
    subsystem_product: Annotated[Hex4 | None, Field(examples=["1096"])] = None
    """PCI subsystem id, to distinguish boards with the same chip."""
    pci_class: Annotated[Hex4 | None, Field(alias="class", examples=["0302"])] = None
    """Base class and subclass, four hexadecimal digits in quotes (`"0302"` is a 3D controller)."""
    addresses: tuple[Bdf, ...] = ()
    """Only the cards at these PCI addresses (`"0000:88:00.0"`). Without addresses, cards in all slots match."""
    function: Literal["physical", "virtual"] = "physical"
    """`virtual`: the SR-IOV virtual functions of cards, by their own ids; `addresses` are those of the cards. Nova gets them, but gpustack neither creates nor binds them, and leaves the card to the host; to create them, use `vfs` of the card's model. `physical`: cards."""  # noqa: E501

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, use_attribute_docstrings=True)

    @property
    def virtual(self) -> bool:
        """Whether it matches virtual functions."""
        return self.function == "virtual"


class Model(SpecSection):
    """A kind of GPU."""

    match: Match
    """The PCI functions of this model."""
    driver: Literal["vfio-pci", "pci-stub"] = "vfio-pci"
    """The driver that reserves the card for passthrough."""
    variant: StrictBool = True
    """With `driver: vfio-pci`: use the VFIO variant driver of the kernels for the card, if they have one (`nvgrace_gpu_vfio_pci`, `mlx5_vfio_pci`). With `false`, always use plain vfio-pci."""  # noqa: E501
    alias: Name | None = None
    """The alias by which flavors request this model from Nova. The default is the name of the model. Nova treats models with the same alias as one kind."""  # noqa: E501
    numa_policy: NumaPolicy | None = None
    """How strictly an instance must be on the NUMA nodes of its GPUs. Nova's default is `legacy`: the same node, unless the node of the card is unknown."""  # noqa: E501
    resource_class: Trait | None = None
    """The resource class of these cards in Placement, with PCI in Placement. Nova's default is `CUSTOM_PCI_<vendor>_<product>`."""  # noqa: E501
    traits: tuple[Trait, ...] = ()
    """Traits of these cards in Placement, which the alias requires, with PCI in Placement."""
    memory: Gib | None = None
    """The memory of one GPU, as `16GiB` or in GiB, for flavors by `gpu.min_memory`. The default is the catalogue's; set it for cards that the catalogue lacks, and for ids with several sizes."""  # noqa: E501
    live_migratable: StrictBool | None = None
    """Whether the cards can be live-migrated. Needs a VFIO variant driver and Nova 2025.1 or later."""
    one_time_use: StrictBool | None = None
    """Whether a card is reserved after its first instance until an operator cleans it and releases it in Placement. Needs `placement: report` or `schedule`, and Nova 2025.2 or later."""  # noqa: E501
    managed: StrictBool | None = None
    """Whether libvirt unbinds a card from its host driver and binds it again afterwards. Nova's default is `true`; `false` is for VFIO variant drivers, with Nova 2025.1 or later."""  # noqa: E501
    vfs: Vfs | None = None
    """Share the cards: the number of virtual functions (SR-IOV) of each card, or a mapping with `count`. They are created at each boot, and Nova gets them instead of the card."""  # noqa: E501

    vgpu: Vgpu | None = None
    """Share the cards as vGPUs of one type, which their host driver creates. Virtual functions and GPU instances are created at each boot; Nova creates mediated devices."""  # noqa: E501

    @property
    def is_virtual(self) -> bool:
        """Whether Nova gets virtual functions or vGPUs of the cards, not the cards."""
        return self.match.virtual or self.is_shared

    @property
    def is_selectable(self) -> bool:
        """Whether flavors can select its GPUs by attribute: complete cards, and vGPUs."""
        return self.vgpu is not None or not self.is_virtual

    @property
    def is_shared(self) -> bool:
        """Whether the host keeps the cards, and shares them."""
        return self.vfs is not None or self.vgpu is not None

    @property
    def ids(self) -> tuple[str, str]:
        """Vendor and product of the functions that Nova gets."""
        return self.match.vendor, (self.vfs and self.vfs.product) or self.match.product
