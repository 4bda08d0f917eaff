"""Create and change flavors by hand: the operations are those of a spec, from command line options."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpustack.base.by_key import sums
from gpustack.base.errors import FlavorError, UsageError
from gpustack.base.text import quoted
from gpustack.offer.flavor.compare import FlavorChoices, compare
from gpustack.offer.flavor.flavors import ACCESS, MARK, ORIGIN, PresentFlavor, WantedFlavor, access_mark, gpus_text
from gpustack.offer.flavor.operations import ChangeFlavor, CreateFlavor
from gpustack.spec.extra_specs import ALIAS, NAMESPACE, parse_alias


@dataclass(frozen=True, kw_only=True)
class GpuOption:
    """One ``--model NAME[:N]`` or ``--alias NAME[:N]``.

    :ivar count: None if the option has no ``:N``.
    :ivar model: whether the name is a model; otherwise it is an alias.
    """

    name: str
    count: int | None
    model: bool

    def __str__(self) -> str:
        return self.name if self.count is None else f"{self.name}:{self.count}"


def gpu_option(text: str, *, model: bool) -> GpuOption:
    """Parse ``NAME`` or ``NAME:N``.

    :raises ValueError: if a flavor cannot request that. Nova releases without validation accept any name here, and
        each boot fails (``nova/pci/request.py`` splits the extra spec at commas and colons).
    """
    name, colon, count = text.strip().partition(":")
    if not name.strip() or "," in text or (colon and re.fullmatch("[1-9][0-9]{0,3}", count) is None):
        raise ValueError(f"{text!r} is not NAME or NAME:N (N: at least 1); repeat the option for another kind of GPU")
    return GpuOption(name=name, count=int(count) if colon else None, model=model)


def requested(options: Sequence[GpuOption], count: int | None) -> dict[str, int]:
    """Return the number of GPUs by alias.

    :param options: with aliases as names; two models may have the same alias.
    :param count: ``--count``; None if not given.
    :raises UsageError: if it is unclear to which option ``count`` applies.
    """
    if count is not None and (len(options) != 1 or options[0].count is not None):
        names = ", ".join(map(str, options))
        raise UsageError(f"--count is ambiguous: the GPUs are {names}", remedy="write NAME:N for each kind of GPU")
    return sums((option.name, option.count or count or 1) for option in options)


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The changes that ``gpustack flavor set`` requests.

    :ivar set_specs: extra specs to set.
    :ivar unset_specs: extra specs to remove, regardless of who set them.
    :ivar description: the new description; None keeps it.
    :ivar grant: ids of projects to give access.
    :ivar revoke: ids of projects to remove access from.
    """

    set_specs: Mapping[str, str] = field(default_factory=dict)
    unset_specs: frozenset[str] = frozenset()
    description: str | None = None
    grant: frozenset[str] = frozenset()
    revoke: frozenset[str] = frozenset()


def find_flavor(present: Sequence[PresentFlavor], name: str) -> PresentFlavor:
    """Return the flavor with this name or id.

    :raises UsageError: if there is none, or if the name of one flavor is the id of another.
    """
    matching = [flavor for flavor in present if name in (flavor.name, flavor.id)]
    if len(matching) > 1:
        texts = " and ".join(f"{flavor.name} (id {flavor.id})" for flavor in matching)
        remedy = "write the id of the one with this name, or the name of the one with this id"
        raise UsageError(f"{name!r} is the name of one flavor and the id of another: {texts}", remedy=remedy)
    if not matching:
        raise UsageError(f"there is no flavor {name!r}", remedy="`gpustack flavor list --all` lists them")
    return matching[0]


def creation(wanted: WantedFlavor, present: Sequence[PresentFlavor]) -> CreateFlavor:
    """Return the operation that creates a flavor.

    :raises FlavorError: if its name or id is taken.
    """
    for flavor in present:
        if flavor.name == wanted.name:
            remedy = f"`gpustack flavor set {quoted(wanted.name)}` changes it; `gpustack flavor delete` removes it"
            state = ", and only half made" if flavor.half_made else ""
            raise FlavorError(f"there is a flavor {wanted.name} already{state}", remedy=remedy)
        if flavor.id == wanted.id:
            raise FlavorError(f"{flavor.name} has the id {wanted.id} already")
    operations = compare([wanted], ()).operations
    assert isinstance(operations[0], CreateFlavor)  # noqa: S101 - nothing is there to compare with
    return operations[0]


def refuse_own(keys: Iterable[str]) -> None:
    """Refuse to set or unset gpustack's own extra specs by hand.

    :raises UsageError: if one of these keys is gpustack's.
    """
    if own := sorted(key for key in keys if key.startswith(NAMESPACE)):
        raise UsageError(f"{own[0]} is gpustack's own")


def change(flavor: PresentFlavor, changes: Changes, access: frozenset[str] | None) -> ChangeFlavor | None:
    """Return the operation that changes a flavor; None if nothing changes.

    :param access: ids of the projects that may use it; None for a public flavor, or if access does not change.
    :raises UsageError: if the change is impossible: access to a public flavor, or removal of the alias or of the mark.
    """
    if (changes.grant or changes.revoke) and flavor.public:
        raise UsageError(f"{flavor.name} is public, and can't be made private", remedy="make another one")
    refuse_own(changes.unset_specs)
    if ALIAS in changes.unset_specs and flavor.ours:
        raise UsageError(f"without {ALIAS}, {flavor.name} is no GPU flavor", remedy="`gpustack flavor delete` it")
    if both := (changes.set_specs.keys() & changes.unset_specs) | (changes.grant & changes.revoke):
        raise UsageError(f"to be added and to be removed: {', '.join(sorted(both))}", remedy="omit one of the options")
    # Access is handled below; comparing it as public leaves it out here.
    as_public = replace(flavor, public=True)
    operations = compare([_wanted(flavor, changes)], [as_public], FlavorChoices(adopt=True)).operations
    compared = operations[0].flavor if operations else flavor
    specs = {key: value for key, value in compared.extra_specs.items() if key not in changes.unset_specs}
    have = access or frozenset()
    projects = (have | changes.grant) - changes.revoke
    if projects != have:
        specs[ACCESS] = access_mark(projects)
    before = replace(flavor, access=have)
    after = replace(before, description=compared.description, extra_specs=specs, access=projects)
    return None if after == before else ChangeFlavor(why="as asked", before=before, flavor=after)


def _wanted(flavor: PresentFlavor, changes: Changes) -> WantedFlavor:
    """Return the flavor after the changes, with the extra specs that gpustack owns."""
    specs = {key: flavor.extra_specs[key] for key in flavor.owned if key in flavor.extra_specs}
    owned = {key: value for key, value in {**specs, **changes.set_specs}.items() if key not in changes.unset_specs}
    if (description := changes.description) is None:
        description = flavor.description.removesuffix(MARK).strip()
        if description == gpus_text(flavor.gpus):
            description = ""  # generated: it changes with the GPUs
    return WantedFlavor(
        name=flavor.name,
        sizes=flavor.sizes,
        gpus=parse_alias(owned.get(ALIAS, "")),
        extra_specs=owned,
        description=description,
        origin="spec" if flavor.extra_specs.get(ORIGIN) == "spec" else "hand",
    )
