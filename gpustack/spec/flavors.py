"""The section ``flavors`` of the spec's model."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, StrictBool, StringConstraints, WithJsonSchema

from gpustack.spec.extra_specs import CPU_POLICY, NUMA_NODES, PAGE_SIZE, has_numa_nodes
from gpustack.spec.fields import Name, NumaPolicy, SpecSection, integer, matching

SIZE_PATTERN = r"^([1-9][0-9]{0,8})(MiB|GiB|TiB)$"
PAGE_PATTERN = r"^(small|large|any|[0-9]+([kKMGT]i?)?(b|bit|B)?)$"
FLAVOR_PATTERN = r"^\S(.{0,253}\S)?$"
FLAVOR_ID_PATTERN = r"^[A-Za-z0-9._{}-]([A-Za-z0-9. _{}-]{0,253}[A-Za-z0-9._{}-])?$"
TRAIT_PATTERN = r"^[A-Za-z0-9_]{1,248}$"
GENERATION_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9 ()-]{0,39}$"
EXTRA_SPEC_PATTERN = r"^[A-Za-z0-9_:. -]{1,255}$"
MAX_INT = 0x7FFFFFFF
"""The largest size that Nova accepts (``nova/db/constants.py``)."""
MAX_GPUS = 64
_UNITS = {"MiB": 1, "GiB": 1 << 10, "TiB": 1 << 20}
_AUTO = {"type": "string", "enum": ["auto"]}
_SIZE = {"type": "string", "pattern": SIZE_PATTERN}


def _choice(expected: str, examples: Sequence[object], *kinds: Mapping[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [*kinds], "errorMessage": f"expected {expected}", "examples": [*examples]})


def _whole(least: int, most: int = MAX_INT) -> dict[str, Any]:
    """The JSON schema of a number within limits."""
    return {"type": "integer", "minimum": least, "maximum": most}


def _number(value: object, least: int, most: int = MAX_INT) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError
    return value


def _amount(unit: str, least: int) -> Callable[[object], int]:
    """A reader of ``32GiB`` or a plain number as a number of ``unit``."""

    def read(value: object) -> int:
        size = re.fullmatch(SIZE_PATTERN, value) if isinstance(value, str) else None
        if size:
            amount, remainder = divmod(int(size[1]) * _UNITS[size[2]], _UNITS[unit])
            value = None if remainder else amount
        return _number(value, least)

    return read


def _amount_schema(unit: str, example: str, least: int) -> WithJsonSchema:
    return _choice(f"a number of {unit}, or one with its unit, like {example}", [example], _whole(least), _SIZE)


def _or_auto(parse: Callable[[object], int]) -> PlainValidator:
    return PlainValidator(lambda value: value if value == "auto" else parse(value))


def _counts(value: object) -> tuple[int, ...]:
    """Counts as a tuple; a single count is short for a list of one."""
    counts = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not counts:
        raise ValueError
    return tuple(_number(count, 1, MAX_GPUS) for count in counts)


FlavorName = Annotated[
    str, matching(FLAVOR_PATTERN, "a name of 1 to 255 characters without blanks at its ends", "g1.k4200.{count}")
]
Project = Annotated[str, matching(FLAVOR_PATTERN, "a project's id or name", "research")]
ImageName = Annotated[str, matching(FLAVOR_PATTERN, "the name of an image, a pattern, or an id", "ubuntu-24.04-gpu*")]
Vcpus = Annotated[int, integer(1, MAX_INT, "a number of vCPUs")]
Ram = Annotated[int, PlainValidator(_amount("MiB", 1)), _amount_schema("MiB", "32GiB", 1)]
Disk = Annotated[int, PlainValidator(_amount("GiB", 0)), _amount_schema("GiB", "40GiB", 0)]
Swap = Annotated[int, PlainValidator(_amount("MiB", 0)), _amount_schema("MiB", "4GiB", 0)]
AutoVcpus = Annotated[
    int | Literal["auto"],
    _or_auto(partial(_number, least=1)),
    _choice("a number of vCPUs, or auto", ["auto"], _AUTO, _whole(1)),
]
AutoRam = Annotated[
    int | Literal["auto"],
    _or_auto(_amount("MiB", 1)),
    _choice("a number of MiB, or one with its unit, like 32GiB, or auto", ["32GiB", "auto"], _AUTO, _whole(1), _SIZE),
]
_UP_TO_MOST = f"a number from 1 to {MAX_GPUS}"
Count = Annotated[int, integer(1, MAX_GPUS, _UP_TO_MOST)]
_COUNT = _whole(1, MAX_GPUS)
_EXPECTED = f"{_UP_TO_MOST}, or a list of them, like [1, 2, 4]"
Counts = Annotated[
    tuple[int, ...],
    PlainValidator(_counts),
    _choice(_EXPECTED, [[1, 2, 4]], _COUNT, {"type": "array", "minItems": 1, "items": _COUNT}),
]

THRESHOLDS = (4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 141, 180, 192, 256, 288)
"""The sizes of memory, in GiB, for which cards have traits in Placement."""
_SIZES = [f"{size}GiB" for size in THRESHOLDS]


def _threshold(value: object) -> int:
    size = _amount("GiB", 1)(value)
    if size not in THRESHOLDS:
        raise ValueError
    return size


Gib = Annotated[int, PlainValidator(_amount("GiB", 1)), _amount_schema("GiB", "16GiB", 1)]
Threshold = Annotated[
    int,
    PlainValidator(_threshold),
    _choice(
        f"one of {', '.join(_SIZES)}",
        ["16GiB"],
        {"type": "integer", "enum": list(THRESHOLDS)},
        {"type": "string", "enum": _SIZES},
    ),
]
Generation = Annotated[
    str, matching(GENERATION_PATTERN, "the name of a generation, as in the catalogue of cards", "Ampere")
]
Trait = Annotated[str, matching(TRAIT_PATTERN, "a name of up to 248 letters, digits and '_'", "CUSTOM_GPU_K4200")]
ExtraSpec = Annotated[
    str, matching(EXTRA_SPEC_PATTERN, "an extra spec of up to 255 letters, digits, '_', '-', ':', '.' and blanks")
]
ExtraSpecValue = Annotated[
    str,
    StringConstraints(max_length=255),
    WithJsonSchema(
        {"type": "string", "maxLength": 255, "patternErrorMessage": "expected text of up to 255 characters"}
    ),
]


class Attributes(SpecSection):
    """GPUs of any model with all given attributes; `{}` means any GPU."""

    min_memory: Threshold | None = None
    """At least this memory of one GPU, by the catalogue of cards or `memory` of the model."""
    generation: Generation | None = None
    """The generation by the catalogue of cards, such as `Ampere`."""
    traits: tuple[Trait, ...] = ()
    """Traits that the spec gives to models, such as `CUSTOM_GPU_NVLINK`."""


class PerGpu(SpecSection):
    """Resources of an instance for each of its GPUs."""

    vcpus: AutoVcpus | None = None
    """vCPUs for each GPU; `auto` divides the processors of each host by its GPUs and uses the smallest share."""
    ram: AutoRam | None = None
    """Memory for each GPU, as `32GiB` or in MiB; `auto` divides the memory of each host in the same way."""
    disk: Disk | None = None
    """Root disk for each GPU, as `40GiB` or in GiB."""


class Reserve(SpecSection):
    """Resources that `auto` keeps for a host."""

    vcpus: Annotated[int, integer(0, MAX_INT, "a number of processors")] = 2
    """Processors reserved for the host."""
    ram: Swap = 8192
    """Memory reserved for the host, as `16GiB` or in MiB."""


class Numa(SpecSection):
    """NUMA placement of instances."""

    policy: NumaPolicy | None = None
    """How strictly an instance must be on the NUMA nodes of its GPUs (`hw:pci_numa_affinity_policy`). The default is the policy of the model. It has an effect only on instances with NUMA nodes: set `nodes`, `cpu_policy: dedicated` or `mem_page_size` too."""  # noqa: E501
    nodes: Annotated[
        int | Literal["auto"] | None,
        _or_auto(partial(_number, least=1, most=MAX_GPUS)),
        _choice(f"{_UP_TO_MOST}, or auto", ["auto"], _AUTO, _COUNT),
    ] = None
    """Number of NUMA nodes of the instance (`hw:numa_nodes`); `auto` is the smallest number whose nodes have enough GPUs on every host that fits."""  # noqa: E501


class Flavor(SpecSection):
    """A flavor, or several flavors that differ in the number of GPUs."""

    model: Name | None = None
    """The model of the GPUs."""
    count: Counts = (1,)
    """Number of GPUs. A list makes one flavor for each number; `{count}` in the name is replaced."""
    gpus: Annotated[Mapping[Name, Count], Field(min_length=1)] | None = None
    """Instead of `model` and `count`: the number of GPUs of each of several models."""
    gpu: Attributes | None = None
    """Instead of `model`: GPUs of any model with these attributes. With PCI in Placement, set `class_by: pool` in `nova`."""  # noqa: E501
    per_gpu: PerGpu = PerGpu()
    """Resources for each GPU. Set each of `vcpus`, `ram` and `disk` either here or in the flavor itself."""
    vcpus: Vcpus | None = None
    """vCPUs, independent of the number of GPUs."""
    ram: Ram | None = None
    """Memory, independent of the number of GPUs, as `32GiB` or in MiB."""
    disk: Disk | None = None
    """Root disk, independent of the number of GPUs, as `40GiB` or in GiB. 0 means the size of the image; by default, Nova allows it only for instances that boot from a volume."""  # noqa: E501
    ephemeral: Disk = 0
    """Ephemeral disk, as `100GiB` or in GiB."""
    swap: Swap = 0
    """Swap, as `4GiB` or in MiB."""
    reserve: Reserve = Reserve()
    """Resources that `auto` keeps for the host."""
    id: Annotated[
        str | None,
        matching(FLAVOR_ID_PATTERN, "an id of letters, digits, '.', '_', '-' and blanks inside", "gpu-{count}"),
    ] = None
    """The flavor's id, if other tools rely on it; `{count}` is replaced. The default is a new UUID."""
    description: str | None = None
    """Description in the list of flavors; `{count}` is replaced. The default for parts of shared cards (`vfs`) is their fraction, such as `1/4 A16`."""  # noqa: E501
    access: tuple[Project, ...] | None = None
    """Projects, by id or name, that may use the flavor. Without this key, all projects may; with an empty list, only administrators."""  # noqa: E501
    numa: Numa = Numa()
    """NUMA placement of the instance."""
    cpu_policy: Literal["shared", "dedicated"] | None = None
    """Whether each vCPU is pinned to a dedicated host processor (`hw:cpu_policy`)."""
    mem_page_size: Annotated[str | None, matching(PAGE_PATTERN, "small, large, any, or a size of pages", "1GB")] = None
    """The size of memory pages (`hw:mem_page_size`): `small`, `large`, `any`, or a size like `1GB`."""
    maxphysaddr: Literal["passthrough"] | None = None
    """Give the instance the host's physical address width (`hw:maxphysaddr_mode`), so that its firmware has address space for GPUs with large BARs. Needs Nova 2024.1 or later."""  # noqa: E501
    hide_hypervisor: StrictBool = False
    """Hide KVM from the guest, for drivers that do not work in virtual machines (error 43). The default is `true` for Windows with consumer cards of NVIDIA."""  # noqa: E501
    guest: Literal["linux", "windows"] | None = None
    """The operating system of the instances. With `windows`, the hypervisor is hidden if a model of the flavor needs that, and the properties that images need are reported and checked."""  # noqa: E501
    windows: StrictBool = False
    """The same as `guest: windows`; its earlier name."""
    secure_boot: StrictBool = False
    """Require Secure Boot (`os:secure_boot`). Images need `hw_firmware_type=uefi` and `hw_machine_type=q35`. Needs Nova Wallaby or later."""  # noqa: E501
    tpm: StrictBool = False
    """Give each instance a virtual TPM 2.0 (`hw:tpm_version`), as Windows 11 requires. Hosts need swtpm and `[libvirt] swtpm_enabled`, Nova a key manager. Needs Nova Victoria or later."""  # noqa: E501
    images: tuple[ImageName, ...] = ()
    """The images for the flavor's instances, by name, pattern (`*` and `?`) or id, for `gpustack image check`. Without images, the command checks those that it is given, or all public ones."""  # noqa: E501
    extra_specs: Mapping[ExtraSpec, ExtraSpecValue] = {}
    """Other extra specs, with their values as text in quotes."""

    @property
    def is_windows(self) -> bool:
        """Whether the spec declares that instances run Windows."""
        return self.windows or self.guest == "windows"

    @property
    def has_numa_nodes(self) -> bool:
        """Whether Nova gives the instance NUMA nodes."""
        keys = {NUMA_NODES: self.numa.nodes, CPU_POLICY: self.cpu_policy, PAGE_SIZE: self.mem_page_size}
        return has_numa_nodes({**{key: str(value) for key, value in keys.items() if value}, **self.extra_specs})


def named(template: str, count: int) -> str:
    """Replace ``{count}`` in a flavor's name, id or description."""
    return template.replace("{count}", str(count))


def amount(text: str, unit: str) -> int:
    """Parse a size of the command line: ``32GiB``, or a plain number of ``unit`` (``MiB`` or ``GiB``).

    :raises ValueError: when the text is not a size, or not a whole number of ``unit``.
    """
    try:
        return _amount(unit, 0)(int(text) if text.isdecimal() else text)
    except ValueError:
        what = f"{text!r} is no size: expected a number of {unit}, or one with its unit, like 32GiB"
        raise ValueError(what) from None
