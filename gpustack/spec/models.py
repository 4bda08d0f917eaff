"""The section ``models`` of ``gpustack.yaml``: kinds of GPUs and the PCI functions that they match."""

from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, StrictBool

from gpustack.pci.address import Address
from gpustack.spec.fields import Hex4, Name, NumaPolicy, SpecSection, described
from gpustack.spec.flavors import Gib, Trait
from gpustack.spec.vgpu import Vfs, Vgpu

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
