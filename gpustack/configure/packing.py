"""Options that keep requests for several GPUs possible, in nova-scheduler and in Placement.

Nova's weighers spread instances. ``PCIWeigher`` prefers hosts with few free devices, but the weighers of memory, disk
and CPUs outvote it unless its multiplier is larger. With PCI in Placement, each GPU of a flavor is a request group of
its own, so Placement combines every free GPU with every other: 1,680 candidates for 4 of 8 GPUs, 40,320 for 8 of 8.
"""

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpustack.base.by_key import by_key
from gpustack.hosts.facts.model import Host
from gpustack.nova_options import releases
from gpustack.nova_options.options import Option, Release
from gpustack.spec.model import Placement, Spec
from gpustack.spec.requests import SLOW, candidates, requests
from gpustack.spec.verdict import HostVerdicts, verdicts

MANY = 4
"""The number of GPUs in one flavor from which Placement's candidates need a limit: one host with eight has 1,680."""
LIMIT = 1000
"""The number of candidates that Nova requests (the default of ``[scheduler] max_placement_results``)."""


@dataclass(frozen=True, kw_only=True)
class Advised:
    """An option that Nova or Placement works without, with the value to set. The comment is the reason."""

    option: Option
    value: str
    comment: str = ""

    def means(self, value: str) -> bool:
        """Whether a value means the advised one to oslo.config."""
        if self.option.kind == "bool":
            return value.lower() in releases.TRUE
        return number(value) == number(self.value) if self.option.kind == "number" else value == self.value


def number(text: str) -> float | None:
    """The value of a number option; None if oslo.config refuses it."""
    with contextlib.suppress(ValueError):
        return float(text)
    return None


MULTIPLIER = Advised(
    option=releases.option("filter_scheduler/pci_weight_multiplier"),
    value="10",
    comment="Fill hosts one after another, so that requests for several GPUs still find a host.",
)
CANDIDATES = (
    Advised(
        option=releases.option("placement/max_allocation_candidates"),
        value=str(LIMIT),
        comment="A flavor with several GPUs has thousands of candidates on each host. Nova requests 1000.",
    ),
    Advised(
        option=releases.option("placement/allocation_candidates_generation_strategy"),
        value="breadth-first",
        comment="Limited candidates from all hosts. By default, they come from the first hosts only.",
    ),
    Advised(
        option=releases.option("workarounds/optimize_for_wide_provider_trees"),
        value="true",
        comment="Skip combinations that contain a GPU twice.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Requested:
    """The GPU counts of a spec's flavors.

    :ivar mixed: the aliases that flavors request in more than one count.
    :ivar largest: the highest number of GPUs of one flavor.
    :ivar candidates: the highest number of Placement's candidates for one flavor, if all GPUs of the known hosts are
        free.
    """

    mixed: tuple[str, ...] = ()
    largest: int = 0
    candidates: int = 0

    @property
    def explodes(self) -> bool:
        """Whether Placement has so many candidates for a flavor that making them all takes long."""
        return self.largest >= MANY or self.candidates > SLOW


def requested(spec: Spec, gpus: Collection[Mapping[str, int]] = ()) -> Requested:
    """The GPU counts of a spec.

    :param gpus: the number of GPUs by alias, for each host with facts.
    """
    flavors = list(requests(spec))
    counts = by_key(pair for flavor in flavors for pair in flavor.items())
    return Requested(
        mixed=tuple(alias for alias, several in counts.items() if len({*several}) > 1),
        largest=max((sum(flavor.values()) for flavor in flavors), default=0),
        candidates=max((sum(candidates(flavor, host) for host in gpus) for flavor in flavors), default=0),
    )


def gpus_by_alias(spec: Spec, judged: HostVerdicts) -> Mapping[str, int]:
    """The number of offered GPUs by alias; a GPU counts for each alias that requests it."""
    return Counter(alias for target in judged.offered for alias in spec.aliases_of(target.model))


def gpus_of(spec: Spec, hosts: Sequence[Host]) -> list[Mapping[str, int]]:
    """The number of GPUs by alias, for each host of a spec."""
    return [gpus_by_alias(spec, verdicts(spec, host)) for host in hosts]


def advised(wanted: Requested, release: Release, placement: Placement) -> Iterator[Advised]:
    """The options to set, as far as the release has them."""
    if wanted.mixed and MULTIPLIER.option.known_to(release):
        yield MULTIPLIER
    if wanted.explodes and placement == "schedule":
        yield from (advice for advice in CANDIDATES if advice.option.known_to(release))
