"""The schema of ``gpustack.yaml``, version 1.

The JSON schema for editors and the reference in the docs are generated from these classes: a field's docstring is its
documentation, and a ``patternErrorMessage`` is the expectation that editors and ``gpustack spec check`` show.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StringConstraints,
    WithJsonSchema,
)

from gpustack.pci.address import Address
from gpustack.spec.fields import Name, NumaPolicy, SpecSection, described
from gpustack.spec.flavors import Flavor, FlavorName
from gpustack.spec.patterns import MAX_LENGTH, HostPattern

HEX4_PATTERN = r"^[0-9A-Fa-f]{4}$"
TRAIT_PATTERN = r"^[A-Za-z0-9_]{1,248}$"
RELEASE_PATTERN = r"^[A-Za-z0-9.]{1,32}$"
ADDRESS_PATTERN = r"^([0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[01][0-9A-Fa-f]\.[0-7]$"
# The part that an editor can check; HostPattern checks the ends of ranges.
HOST_PATTERN = (
    r"^([A-Za-z0-9_*?]|\[[0-9A-Za-z]*:[0-9A-Za-z]+(:[0-9]+)?\])"
    r"([A-Za-z0-9_.*?-]|\[[0-9A-Za-z]*:[0-9A-Za-z]+(:[0-9]+)?\])*$"
)


def _address(text: str) -> str:
    return str(Address.parse(text))


def _pattern(text: str) -> str:
    return HostPattern.parse(text).text


def _off(placement: object) -> object:
    """``off``, which YAML 1.1 reads as a boolean."""
    return "off" if placement is False else placement


def _long_form(entry: object) -> object:
    """The long form ``{models: [k4200]}`` of ``[k4200]``."""
    return {"models": entry} if isinstance(entry, list | tuple) else entry


Placement = Literal["off", "report", "schedule"]
"""The stage of the roll-out of PCI in Placement."""
Hex4 = Annotated[
    str,
    StringConstraints(pattern=HEX4_PATTERN),
    AfterValidator(str.lower),
    described(HEX4_PATTERN, "four hexadecimal digits in quotes"),
]
Bdf = Annotated[
    str,
    AfterValidator(_address),
    described(ADDRESS_PATTERN, "a PCI address in quotes (domain:bus:device.function)", "0000:88:00.0"),
]
Trait = Annotated[
    str,
    StringConstraints(pattern=TRAIT_PATTERN),
    described(TRAIT_PATTERN, "a name of up to 248 letters, digits and '_'", "CUSTOM_GPU_K4200"),
]
ReleaseName = Annotated[
    str,
    StringConstraints(pattern=RELEASE_PATTERN),
    described(RELEASE_PATTERN, "a release's number in quotes, or its codename", "2025.2"),
]
Pattern = Annotated[
    str,
    AfterValidator(_pattern),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": HOST_PATTERN,
            "maxLength": MAX_LENGTH,
            "patternErrorMessage": "expected a host name or a pattern like gpu-[01:16].example.org or gpu-*",
            "examples": ["gpu-[01:16].example.org"],
        }
    ),
]


class Match(SpecSection):
    """Which functions are of a model: all that is given must fit."""

    vendor: Annotated[Hex4, Field(examples=["10de"])]
    """PCI vendor id, four hexadecimal digits in quotes (`"10de"` is NVIDIA)."""
    product: Annotated[Hex4, Field(examples=["11b4"])]
    """PCI product (device) id, four hexadecimal digits in quotes."""
    subsystem_vendor: Annotated[Hex4 | None, Field(examples=["10de"])] = None
    """PCI subsystem vendor id, where makers of the same chip must be told apart."""
    subsystem_product: Annotated[Hex4 | None, Field(examples=["1096"])] = None
    """PCI subsystem id, where boards of the same chip must be told apart."""
    pci_class: Annotated[Hex4 | None, Field(alias="class", examples=["0302"])] = None
    """Base class and subclass, four hexadecimal digits in quotes (`"0302"` is a 3D controller)."""
    addresses: tuple[Bdf, ...] = ()
    """Only the cards at these PCI addresses (`"0000:88:00.0"`); anywhere when there are none."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, use_attribute_docstrings=True)


class NvSwitch(enum.StrEnum):
    """What becomes of a host's NVSwitches."""

    FULL = "full"
    """All GPUs and all NVSwitches of the host go to one guest: the switches are bound too."""
    SHARED = "shared"
    """A service guest manages the fabric for the others: the switches are bound too."""
    ISOLATED = "isolated"
    """Every GPU works alone, without NVLink: the switches stay with the host."""


class Options(SpecSection):
    """How hosts are prepared."""

    iommu_pt: StrictBool = True
    """Add `iommu=pt`: the host's own devices bypass DMA translation, for speed. Guests are isolated all the same."""
    allow_unsafe_interrupts: StrictBool = False
    """Add `vfio_iommu_type1.allow_unsafe_interrupts=1`, for machines without interrupt remapping. A guest can then inject interrupts into the host: only for guests that are trusted."""  # noqa: E501
    nvswitch: NvSwitch | None = None
    """What becomes of NVSwitches; must be said for hosts that have them. `full`: all GPUs and all switches of the host go to one guest. `shared`: a service guest manages the fabric for the others. `isolated`: every GPU works alone, without NVLink, and the switches stay with the host."""  # noqa: E501
    blacklist_host_drivers: StrictBool = True
    """Blacklist the cards' host drivers where no other device of the host uses them."""

    def overlaid(self, other: Options) -> Options:
        """These options, with those that ``other`` sets explicitly replaced."""
        return self.model_copy(update={name: getattr(other, name) for name in other.model_fields_set})


class Model(SpecSection):
    """A kind of GPU."""

    match: Match
    """Which functions are of this model."""
    driver: Literal["vfio-pci", "pci-stub"] = "vfio-pci"
    """The driver that holds the card for guests."""
    variant: StrictBool = True
    """With `driver: vfio-pci`: take the VFIO variant driver that the kernels have for the card (`nvgrace_gpu_vfio_pci`, `mlx5_vfio_pci`); `false` for plain vfio-pci always."""  # noqa: E501
    alias: Name | None = None
    """The alias by which flavors ask Nova for this model; the model's name when not given. Models that share an alias are given out as one kind."""  # noqa: E501
    numa_policy: NumaPolicy | None = None
    """How strictly a guest's NUMA nodes must be those of its GPUs. Nova's default is `legacy`: the same node, unless the card tells none."""  # noqa: E501
    resource_class: Trait | None = None
    """The resource class under which Placement counts these cards, when PCI in Placement is on; Nova makes `CUSTOM_PCI_<vendor>_<product>` of the ids when none is given."""  # noqa: E501
    traits: tuple[Trait, ...] = ()
    """Traits that Placement keeps of these cards and that the alias asks for, when PCI in Placement is on."""
    live_migratable: StrictBool | None = None
    """Whether the cards can be live-migrated; needs a VFIO variant driver and Nova 2025.1 or later."""
    one_time_use: StrictBool | None = None
    """Whether a card is reserved after its first instance until an operator cleans it and releases it in Placement; needs `placement: report` or `schedule`, and Nova 2025.2 or later."""  # noqa: E501
    managed: StrictBool | None = None
    """Whether libvirt takes a card from its host driver and gives it back. Nova's default is yes; `false` is for VFIO variant drivers, with Nova 2025.1 or later."""  # noqa: E501


_Names = Annotated[
    tuple[Name, ...],
    Field(min_length=1, json_schema_extra={"errorMessage": "expected a list of names of models, like [k4200]"}),
]


class HostEntry(SpecSection):
    """Hosts of one pattern: the models that they give to guests, and options of their own."""

    models: _Names
    """The models whose cards these hosts give to guests."""
    options: Options = Options()
    """Options of these hosts; each that is given here stands in place of the spec's."""


_Entry = Annotated[HostEntry, BeforeValidator(_long_form, json_schema_input_type=_Names | HostEntry)]


class Nova(SpecSection):
    """The Nova that the hosts belong to."""

    release: ReleaseName
    """The release that runs: its number in quotes (`"2025.2"`) or its codename (`yoga`)."""
    deployment: Literal["drop-in", "kolla", "kayobe", "openstack-ansible", "rhoso", "openstack-helm"] = "drop-in"
    """How its configuration is deployed. `drop-in`: files in `/etc/nova/nova.conf.d`. `kolla`: overrides for kolla-ansible. `kayobe`: the same in kayobe's configuration. `openstack-ansible`: variables of its os_nova role. `rhoso`: custom resources of Red Hat OpenStack Services on OpenShift. `openstack-helm`: values of its chart of Nova."""  # noqa: E501
    placement: Annotated[Placement, BeforeValidator(_off)] = "off"
    """PCI in Placement, in the order of its roll-out. `report` (Zed and later): every nova-compute reports its devices; it can't be switched off again. `schedule` (2023.1 and later): they are scheduled by what was reported; only once every nova-compute reports."""  # noqa: E501


class Spec(SpecSection):
    """What gpustack is to make of hosts and their GPUs: `gpustack.yaml`, version 1."""

    version: Literal[1]
    """The version of this format; always 1."""
    models: Annotated[Mapping[Name, Model], Field(min_length=1)]
    """The kinds of GPU, by a name of your choice. Where two models fit a card, it is of the one that says more."""
    hosts: Annotated[Mapping[Pattern, _Entry], Field(min_length=1)]
    """Hosts, by name or pattern (ranges as Ansible's inventories write them, `*` and `?`), and the models that they give to guests: a list of names, or `models` with `options`. A host that fits several patterns gives the models of all of them."""  # noqa: E501
    options: Options = Options()
    """Options of all hosts."""
    nova: Nova | None = None
    """The Nova that the hosts belong to; needed for its configuration and for flavors."""
    flavors: Mapping[FlavorName, Flavor] = {}
    """GPU flavors, by name; `{count}` in a name is replaced by the number of GPUs."""

    def alias_of(self, model: str) -> str:
        """The alias by which flavors request a model."""
        return self.models[model].alias or model

    @cached_property
    def plain_hosts(self) -> frozenset[str]:
        """The entries of ``hosts`` that are plain names, for lookup in constant time."""
        return frozenset(text for text in self.hosts if HostPattern.parse(text).is_name)

    @cached_property
    def host_patterns(self) -> tuple[HostPattern, ...]:
        """The entries of ``hosts`` that are patterns, in the order of the file."""
        return tuple(HostPattern.parse(text) for text in self.hosts if text not in self.plain_hosts)
