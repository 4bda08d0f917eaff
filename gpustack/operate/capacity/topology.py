"""The NUMA topology that Nova gives the instances of a flavor, and its check of the flavor's processors. Pure.

Source: ``numa_get_constraints`` of nova/virt/hardware.py. Properties of an image count as Nova merges them.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from gpustack.base.text import counted
from gpustack.nova_options.cpu_sets import cpus
from gpustack.nova_options.options import TRUE
from gpustack.spec.extra_specs import REQUIRED, as_number, required_traits
from gpustack.spec.memory_pages import size_kib

PAGES = {"small": -1, "large": -2, "any": -3}
"""Requests for pages without a size, as Nova numbers them."""
HYPERTHREADING = "HW_CPU_HYPERTHREADING"
_POLICIES = frozenset({"shared", "dedicated", "mixed"})
_THREADS = frozenset({"prefer", "isolate", "require"})
_T = TypeVar("_T")


class FlavorRefusedError(ValueError):
    """Nova's API refuses to boot the flavor, or the flavor with the image."""


@dataclass(frozen=True, kw_only=True)
class GuestNode:
    """A NUMA node of an instance: the numbers of its processors, and its memory in MiB."""

    shared: int = 0
    dedicated: int = 0
    memory: int = 0


@dataclass(frozen=True, kw_only=True)
class Topology:
    """The NUMA topology of an instance.

    :ivar policy: ``dedicated``, ``mixed`` or ``shared``.
    :ivar threads: the thread policy; empty if not set.
    :ivar pages: the page size in KiB, or a value of :data:`PAGES`; None if not requested.
    :ivar isolated: whether the emulator gets one more processor, on the host's node of node 0.
    """

    nodes: tuple[GuestNode, ...]
    policy: str = "shared"
    threads: str = ""
    pages: int | None = None
    isolated: bool = False

    @property
    def pinned(self) -> bool:
        """Whether some of its processors are dedicated. Its memory is then never overcommitted."""
        return self.policy != "shared"


@dataclass(frozen=True, kw_only=True)
class Processors:
    """The processors of an instance.

    :ivar requested: the policy that the flavor or the image names, by which Nova translates processors for Placement.
    :ivar policy: the effective policy; explicit resources of the flavor set it too.
    :ivar threads: the named thread policy. The trait of hyperthreading sets that of the topology only.
    :ivar dedicated: the numbers of the dedicated ones.
    """

    requested: str
    policy: str
    threads: str
    dedicated: frozenset[int]
    isolated: bool


@dataclass(frozen=True, kw_only=True)
class BootRequest:
    """A flavor, and the properties of an image.

    :ivar ram: MiB.
    """

    vcpus: int
    ram: int
    specs: Mapping[str, str]
    image: Mapping[str, str]

    def named(self, name: str, prefix: str = "hw") -> tuple[str, str]:
        """The values of the flavor and of the image; empty if not set."""
        return self.specs.get(f"{prefix}:{name}", ""), self.image.get(f"{prefix}_{name}", "")

    def either(self, name: str, prefix: str = "hw") -> str:
        """The value, which may be that of the flavor or of the image.

        :raises FlavorRefusedError: if they differ.
        """
        flavor, image = self.named(name, prefix)
        if flavor and image and flavor != image:
            what = f"{prefix}:{name}={flavor} and the image's {prefix}_{name}={image} exclude each other"
            raise FlavorRefusedError(what)
        return flavor or image

    def resource(self, name: str) -> int:
        """The amount of a resource class that the flavor requests explicitly."""
        return sum(as_number(v) or 0 for k, v in self.specs.items() if re.match(rf"resources([1-9][0-9]*)?:{name}", k))


def processors_of(request: BootRequest) -> Processors:
    """The processors of an instance.

    :raises FlavorRefusedError: if Nova's API refuses the flavor.
    """
    requested, threads = _policy(request), _threads(request)
    emulator = request.specs.get("hw:emulator_threads_policy", "")
    allowed("hw:emulator_threads_policy", emulator, {"isolate", "share"})
    isolated = emulator == "isolate"
    shared, pinned = request.resource("VCPU"), request.resource("PCPU")
    policy = requested
    if (shared or pinned) and (requested or (shared and pinned)):
        raise FlavorRefusedError("resources:VCPU, resources:PCPU and hw:cpu_policy exclude each other")
    if pinned and pinned != request.vcpus + isolated:
        raise FlavorRefusedError(f"resources:PCPU is {pinned}, with {counted(request.vcpus, 'vCPU')}")
    if shared or pinned:
        policy = "dedicated" if pinned else "shared"
    mask = _mask(request, request.specs.get("hw:cpu_dedicated_mask", ""))
    realtime = _realtime(request, emulator)
    if policy in ("", "shared") and (threads or _trait(request) or isolated or mask or realtime):
        raise FlavorRefusedError("policies for threads, the emulator, a mask and real time need dedicated processors")
    if policy == "dedicated" and mask:
        raise FlavorRefusedError("hw:cpu_dedicated_mask needs hw:cpu_policy=mixed")
    if policy == "mixed" and bool(mask) == bool(realtime):
        raise FlavorRefusedError("hw:cpu_policy=mixed needs either hw:cpu_dedicated_mask or hw:cpu_realtime_mask")
    every = frozenset(range(request.vcpus))
    dedicated = every if policy == "dedicated" else mask or realtime if policy == "mixed" else frozenset[int]()
    return Processors(
        requested=requested, policy=policy or "shared", threads=threads, dedicated=dedicated, isolated=isolated
    )


def topology_of(request: BootRequest, processors: Processors) -> Topology | None:
    """The NUMA topology of an instance; None if it has none.

    :raises FlavorRefusedError: if Nova's API refuses the flavor.
    """
    flavor, image = request.named("numa_nodes")
    if flavor and image:
        raise FlavorRefusedError("hw:numa_nodes and the image's hw_numa_nodes exclude each other")
    nodes = flavor or image
    if nodes and not re.fullmatch("[1-9][0-9]*", nodes):
        raise FlavorRefusedError(f"hw:numa_nodes is {nodes!r}, no number of at least 1")
    pages = _pages(request)
    if request.specs.get("hw:locked_memory", "").lower() in TRUE and not pages:
        raise FlavorRefusedError("hw:locked_memory needs hw:mem_page_size")
    pmem = any(map(str.strip, request.specs.get("hw:pmem", "").split(",")))
    if not nodes and pages is None and not pmem and processors.policy == "shared":
        return None
    if processors.threads and _trait(request):
        raise FlavorRefusedError(f"hw:cpu_thread_policy and trait:{HYPERTHREADING} exclude each other")
    by_trait = {"forbidden": "isolate", "required": "require"}.get(_trait(request), "")
    return Topology(
        nodes=_nodes(request, int(nodes or 1), processors.dedicated),
        policy=processors.policy,
        threads=by_trait or processors.threads,
        pages=pages,
        isolated=processors.isolated,
    )


def allowed(name: str, value: str, values: Collection[str]) -> str:
    """The value of an extra spec, or of the image.

    :raises FlavorRefusedError: if Nova knows no such value.
    """
    if value and value not in values:
        raise FlavorRefusedError(f"{name} is {value!r}, expected {', '.join(sorted(values))}")
    return value


def _policy(request: BootRequest) -> str:
    flavor, image = request.named("cpu_policy")
    allowed("hw:cpu_policy", flavor, _POLICIES)
    allowed("the image's hw_cpu_policy", image, _POLICIES)
    forbidden = {"mixed": ("dedicated",), "shared": ("mixed", "dedicated")}.get(flavor, ())
    if image in forbidden:
        raise FlavorRefusedError(f"hw:cpu_policy={flavor} excludes the image's hw_cpu_policy={image}")
    return flavor or image


def _threads(request: BootRequest) -> str:
    flavor, image = request.named("cpu_thread_policy")
    allowed("hw:cpu_thread_policy", flavor, _THREADS)
    allowed("the image's hw_cpu_thread_policy", image, _THREADS)
    if flavor not in ("", "prefer") and image and image != flavor:
        raise FlavorRefusedError(f"hw:cpu_thread_policy={flavor} excludes the image's hw_cpu_thread_policy={image}")
    return flavor or image


def _trait(request: BootRequest) -> str:
    """The value of the trait of hyperthreading; empty if not set."""
    named = next((v for k, v in request.specs.items() if re.match(rf"trait([1-9][0-9]*)?:{HYPERTHREADING}", k)), "")
    return named or (REQUIRED if HYPERTHREADING in required_traits(request.image) else "")


def _listed(text: str) -> set[int]:
    try:
        return cpus(text)
    except ValueError as error:
        raise FlavorRefusedError(f"{text!r} is no list of processors") from error


def _mask(request: BootRequest, text: str) -> frozenset[int]:
    """The processors of a mask of dedicated ones."""
    if not text:
        return frozenset()
    every = set(range(request.vcpus))
    chosen = _listed(f"0-{request.vcpus - 1},{text}" if text.strip().startswith("^") else text)
    if not set() < chosen < every:
        raise FlavorRefusedError(f"hw:cpu_dedicated_mask={text} must name some of the flavor's vCPUs, not all")
    return frozenset(chosen)


def _realtime(request: BootRequest, emulator: str) -> frozenset[int]:
    if request.specs.get("hw:cpu_realtime", "").lower() not in TRUE:
        return frozenset()
    flavor, image = request.named("cpu_realtime_mask")
    text, every = image or flavor, set(range(request.vcpus))
    chosen = _listed(f"0-{request.vcpus - 1},{text}" if text.strip().startswith("^") else text) if text else every
    if not chosen or not chosen <= every or (chosen == every and not emulator):
        raise FlavorRefusedError(f"hw:cpu_realtime_mask={text} must leave a vCPU of {request.vcpus} to the emulator")
    return frozenset(chosen)


def _pages(request: BootRequest) -> int | None:
    flavor, image = request.named("mem_page_size")
    if image and flavor not in ("large", "any"):
        raise FlavorRefusedError(f"the image's hw_mem_page_size={image} needs hw:mem_page_size=large or any")
    text = image or flavor
    if not text:
        return None
    size = PAGES.get(text) or size_kib(text)
    if size is None:
        raise FlavorRefusedError(f"hw:mem_page_size is {text!r}, no size of pages")
    return size


def _parts(request: BootRequest, name: str, parsed: Callable[[str], _T]) -> list[_T]:
    """The values of ``hw:NAME.0``, ``hw:NAME.1``, …, or those of the image."""
    found: dict[str, list[_T]] = {}
    for prefix, values in (("hw:", request.specs), ("hw_", request.image)):
        numbers = range(len(values))
        names = [f"{prefix}{name}.{number}" for number in numbers]
        missing = next((number for number in numbers if names[number] not in values), len(names))
        found[prefix] = [parsed(values[key]) for key in names[:missing]]
    if found["hw:"] and found["hw_"]:
        raise FlavorRefusedError(f"hw:{name} and the image's hw_{name} exclude each other")
    return found["hw:"] or found["hw_"]


def _nodes(request: BootRequest, number: int, dedicated: frozenset[int]) -> tuple[GuestNode, ...]:
    placed, memory = _parts(request, "numa_cpus", _listed), _parts(request, "numa_mem", _memory)
    if not placed and not memory:
        if request.vcpus % number or request.ram % number:
            what = f"{counted(request.vcpus, 'vCPU')} and {request.ram} MiB are not divisible by {number} NUMA nodes"
            raise FlavorRefusedError(what)
        each = request.vcpus // number
        placed = [set(range(node * each, (node + 1) * each)) for node in range(number)]
        memory = [request.ram // number] * number
    every = sorted(cpu for node in placed for cpu in node)
    if len(placed) != number or len(memory) != number:
        raise FlavorRefusedError(f"hw:numa_cpus and hw:numa_mem must name all of {number} NUMA nodes")
    if every != list(range(request.vcpus)) or sum(memory) != request.ram:
        what = f"hw:numa_cpus and hw:numa_mem must add up to {counted(request.vcpus, 'vCPU')} and {request.ram} MiB"
        raise FlavorRefusedError(what)
    return tuple(
        GuestNode(shared=len(node - dedicated), dedicated=len(node & dedicated), memory=of_node)
        for node, of_node in zip(placed, memory, strict=True)
    )


def _memory(text: str) -> int:
    if (memory := as_number(text)) is None:
        raise FlavorRefusedError(f"hw:numa_mem is {text!r}, no number of MiB")
    return memory
