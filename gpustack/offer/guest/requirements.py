"""The driver that serves all models of a flavor: the intersection of the requirements of their cards."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding, finding
from gpustack.pci import catalogue
from gpustack.pci.catalogue import Card, Requirement, label, requirement_of
from gpustack.spec.attributes import card_of
from gpustack.spec.flavors import Flavor
from gpustack.spec.model import Spec
from gpustack.spec.requests import models_of
from gpustack.spec.vgpu_use import needs_licensed_driver

NVIDIA = "10de"
_FIRST_LISTED = 515
"""The first branch with public sources, which list the cards."""
_BOTH = frozenset({"open", "proprietary"})
_UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class ModelRequirement:
    """What one model of the spec requires.

    :ivar card: its card in the catalogue; None if the catalogue lacks it.
    :ivar vgpu: whether instances get vGPUs of NVIDIA, which only the licensed guest driver serves.
    """

    model: str
    vendor: str
    card: catalogue.Card | None
    requirement: Requirement
    vgpu: bool = False

    @property
    def label(self) -> str | None:
        """The value of a label for the card; None if the catalogue lacks it."""
        return label(self.card) if self.card else None

    @property
    def modules(self) -> frozenset[str]:
        """The kernel modules of NVIDIA that serve it; both if unknown."""
        return _BOTH & {self.requirement.modules or ""} or _BOTH

    @property
    def unknown(self) -> tuple[str, ...]:
        """The facts that the catalogue lacks, for messages."""
        needs = self.requirement
        missing: dict[str, object] = {}
        if self.vgpu:
            pass  # the release of the host's driver decides
        elif self.vendor == NVIDIA:
            missing = {"first driver branch": needs.first, "kernel modules": needs.modules}
        else:
            missing = {"driver in Linux": needs.module}
            if needs.module and not needs.force_probe:
                missing["first release of Linux"] = needs.kernel
        return tuple(name for name, value in missing.items() if value is None)


@dataclass(frozen=True, kw_only=True)
class NvidiaDriver:
    """The NVIDIA drivers that serve all models.

    :ivar first: first branch; None if unknown.
    :ivar last: last branch; None if support continues.
    :ivar modules: the kernel modules that serve all models: ``open``, ``proprietary`` or both; none for Windows.
    :ivar first_release: the first release that serves all models, if it is not the first of its branch.
    :ivar releases: for each model with a table, the first release of each branch that lists it.
    :ivar first_open: the first branch whose open modules serve all models; None if unknown.
    """

    first: int | None
    last: int | None
    modules: frozenset[str]
    first_open: int | None = None
    first_release: str | None = None
    releases: tuple[Mapping[str, str], ...] = ()

    def first_of(self, branch: int) -> str | None:
        """The first release of a branch that lists all models; None if that is unknown, or no release does."""
        firsts = [each[str(branch)] for each in self.releases if str(branch) in each]
        return max(firsts, key=version) if firsts and self._lists(branch) else None

    def _lists(self, branch: int) -> bool:
        """Whether a branch lists all models. Branches after the newest one of the tables list what that one does."""
        newest = max((int(number) for each in self.releases for number in each), default=branch)
        return all(str(min(branch, newest)) in each for each in self.releases)

    def serves(self, branch: int, modules: str) -> bool:
        """Whether a driver of this branch with these kernel modules serves all models."""
        first = self.first_open if modules == "open" else None
        within = max(self.first or 0, first or 0) <= branch <= (self.last or branch)
        return modules in self.modules and within and (branch < _FIRST_LISTED or self._lists(branch))

    def serves_release(self, release: str, modules: str) -> bool:
        """Whether this release of a driver, such as ``580.126.20``, serves all models."""
        numbers = version(release)
        first = self.first_of(numbers[0]) or self.first_release or "0"
        return self.serves(numbers[0], modules) and numbers >= version(first)

    def __str__(self) -> str:
        since, until = f"R{self.first}" if self.first else None, f"R{self.last}" if self.last else None
        if since and until:
            branches = since if since == until else f"{since} to {until}"
        else:
            branches = f"{until} or earlier" if until else f"{since} or later" if since else "any branch"
        return f"{branches}, {' or '.join(sorted(self.modules))} kernel modules" if self.modules else branches


@dataclass(frozen=True, kw_only=True)
class GuestRequirement:
    """What the guests of a flavor require.

    :ivar models: what each of its models requires; a guest gets GPUs of one or more of them.
    :ivar nvidia: the NVIDIA drivers that serve all models; None without NVIDIA cards, if there is a conflict, or if no
        card is known.
    :ivar conflict: why no single NVIDIA driver serves the models; None without conflict.
    :ivar linux: drivers of Linux, each with the first release that supports all cards; None if unknown for a card.
    :ivar windows: whether the guests run Windows, where only the branch of the NVIDIA driver matters.
    """

    flavor: str
    models: tuple[ModelRequirement, ...]
    nvidia: NvidiaDriver | None = None
    conflict: str | None = None
    linux: Mapping[str, str | None]
    windows: bool = False

    @property
    def vgpus(self) -> tuple[str, ...]:
        """The models whose instances get vGPUs of NVIDIA."""
        return tuple(need.model for need in self.models if need.vgpu)

    @property
    def compute(self) -> tuple[str, ...]:
        """The compute targets of the cards: CUDA compute capabilities, AMD gfx targets."""
        targets = (need.requirement.compute or need.requirement.gfx for need in self.models)
        return tuple(dict.fromkeys(target for target in targets if target))

    @property
    def mig(self) -> int | None:
        """The MIG instances that each GPU can have; None if unknown for one of the cards."""
        counts = [need.requirement.mig for need in self.models]
        return None if None in counts else min((count for count in counts if count is not None), default=None)


def requirement_of_flavor(spec: Spec, name: str, flavor: Flavor) -> GuestRequirement:
    """What the guests of an entry of the spec's flavors require."""
    models = [requirement_of_model(spec, model) for model in models_of(spec, flavor)]
    return combined(name, models, windows=flavor.is_windows)


def conflicts(spec: Spec) -> Iterator[Finding]:
    """The flavors of a spec whose models no single driver serves."""
    for name, flavor in spec.flavors.items():
        found = findings_of(requirement_of_flavor(spec, name, flavor))
        yield from (entry for entry in found if entry.code is Code.NO_SINGLE_DRIVER)


def requirement_of_model(spec: Spec, name: str) -> ModelRequirement:
    """What a model of the spec requires."""
    model = spec.models[name]
    card = card_of(model) or catalogue.card_of_function(model.match.vendor, model.match.product)
    requirement = requirement_of(card) if card else Requirement()
    vgpu = needs_licensed_driver(model)
    return ModelRequirement(model=name, vendor=model.match.vendor, card=card, requirement=requirement, vgpu=vgpu)


def combined(flavor: str, models: Sequence[ModelRequirement], *, windows: bool = False) -> GuestRequirement:
    """What guests require that get GPUs of any of these models."""
    nvidia = [need for need in models if need.vendor == NVIDIA and need.requirement.modules and not need.vgpu]
    conflict = _vgpu_conflict(models) or _branch_conflict(nvidia) or (None if windows else _module_conflict(nvidia))
    return GuestRequirement(
        flavor=flavor,
        models=tuple(models),
        nvidia=_driver(nvidia, windows=windows) if nvidia and conflict is None else None,
        conflict=conflict,
        linux={} if windows else _linux(models),
        windows=windows,
    )


def findings_of(needs: GuestRequirement, host_drivers: Sequence[str] = ()) -> Iterator[Finding]:
    """Conflicts, vGPUs, and models whose requirement is unknown.

    :param host_drivers: the releases of NVIDIA's driver on the hosts.
    """
    if needs.conflict:
        models = ", ".join(need.model for need in needs.models)
        yield finding(Code.NO_SINGLE_DRIVER, place=needs.flavor, models=models, reason=needs.conflict)
    if needs.vgpus:
        release = " or ".join(host_drivers) or "unknown"
        yield finding(Code.VGPU_GUEST_DRIVER, place=needs.flavor, models=", ".join(needs.vgpus), release=release)
    for need in needs.models:
        if need.unknown:
            card = need.card.full_name if need.card else "a card that the catalogue lacks"
            yield finding(Code.REQUIREMENT_UNKNOWN, place=need.model, card=card, facts=" and ".join(need.unknown))
        if need.card and need.requirement.force_probe and not needs.windows:
            option = f"{need.requirement.module}.force_probe={need.card.product}"
            yield finding(Code.DRIVER_NEEDS_OPTION, place=need.model, card=need.card.full_name, option=option)


def _driver(models: Sequence[ModelRequirement], *, windows: bool) -> NvidiaDriver:
    """The drivers for all models; open modules may need a later branch than the cards."""
    needs = [need.requirement for need in models]
    modules = frozenset[str]() if windows else frozenset.intersection(*(need.modules for need in models))
    first_open = max((need.first_open for need in needs if need.first_open), default=None)
    firsts = [*(need.first for need in needs), first_open if modules == {"open"} else None]
    return NvidiaDriver(
        first=max((first for first in firsts if first), default=None),
        last=min((need.last for need in needs if need.last), default=None),
        modules=modules,
        first_open=first_open,
        first_release=max((need.first_release for need in needs if need.first_release), key=version, default=None),
        releases=tuple(need.releases for need in needs if need.releases),
    )


def _vgpu_conflict(models: Sequence[ModelRequirement]) -> str | None:
    shared = [need.model for need in models if need.vgpu]
    complete = [need.model for need in models if need.vendor == NVIDIA and not need.vgpu]
    if shared and complete:
        return f"{', '.join(shared)}: the licensed vGPU guest driver; {', '.join(complete)}: another driver"
    return None


def _branch_conflict(models: Sequence[ModelRequirement]) -> str | None:
    lasts = {need.requirement.last: need.model for need in reversed(models) if need.requirement.last}
    firsts = {need.requirement.first: need.model for need in reversed(models) if need.requirement.first}
    last, first = min(lasts, default=None), max(firsts, default=None)
    if last and first and first > last:
        return f"{lasts[last]} needs R{last} or earlier, {firsts[first]} R{first} or later"
    return None


def _module_conflict(models: Sequence[ModelRequirement]) -> str | None:
    closed = [need.model for need in models if need.modules == {"proprietary"}]
    opened = [need.model for need in models if need.modules == {"open"}]
    if closed and opened:
        return f"{', '.join(closed)}: proprietary kernel modules only; {', '.join(opened)}: open kernel modules only"
    return None


def _linux(models: Sequence[ModelRequirement]) -> dict[str, str | None]:
    needed = [need.requirement for need in models]
    kernels = by_key((need.module, need.kernel) for need in needed if need.module)
    return {
        module: None if None in each else max((kernel for kernel in each if kernel), key=version)
        for module, each in kernels.items()
    }


def version(text: str) -> tuple[int, ...]:
    """``6.12`` or ``580.126.20`` as numbers, for comparisons."""
    return tuple(int(part) for part in text.split("."))


def driver_text(card: Card) -> str:
    """The driver that a guest needs: ``R450 or later, open or proprietary kernel modules``."""
    needs = combined(card.name, [_model(card)])
    linux = (f"{module}, Linux {kernel} or later" if kernel else module for module, kernel in needs.linux.items())
    return "; ".join(filter(None, (str(needs.nvidia or ""), *linux))) or _UNKNOWN


def fields(card: Card) -> Iterator[tuple[str, str]]:
    """The facts that the catalogue has, each with its name."""
    needs = requirement_of(card)
    yield "Guest driver", driver_text(card)
    if unknown := _model(card).unknown:
        yield "Unknown", ", ".join(unknown)
    if needs.force_probe:
        yield "Kernel argument", f"{needs.module}.force_probe={card.product}"
    if needs.compute or needs.gfx:
        yield "Compute target", needs.compute or needs.gfx or ""
    if needs.mig:
        yield "MIG", f"up to {needs.mig} instances"
    if needs.functions:
        yield "Virtual functions", ", ".join(f"{card.vendor}:{product}" for product in needs.functions)


def _model(card: Card) -> ModelRequirement:
    return ModelRequirement(model=card.name, vendor=card.vendor, card=card, requirement=requirement_of(card))
