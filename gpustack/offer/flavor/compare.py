"""Compare desired and present flavors, and plan the operations between them.

Data that cost a request each are read only if they matter: :func:`questions` returns what to ask, and :func:`compare`
takes the answers. If there is nothing to do, there are no questions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.text import counted
from gpustack.offer.flavor.flavors import ACCESS, ORIGIN, PresentFlavor, WantedFlavor, access_mark, is_sets_mark
from gpustack.offer.flavor.operations import ChangeFlavor, CreateFlavor, DeleteFlavor, FlavorOperation


@dataclass(frozen=True, kw_only=True)
class FlavorChoices:
    """The operator's choices.

    :ivar adopt: take over flavors that gpustack did not create.
    :ivar replace: names of flavors that may be deleted and created again.
    :ivar prune: delete unused flavors with gpustack's mark that the spec lacks, except those created by hand.
    :ivar check_access: read the project list of every private flavor, even if its mark is current.
    """

    adopt: bool = False
    replace: frozenset[str] = frozenset()
    prune: bool = False
    check_access: bool = False


@dataclass(frozen=True, kw_only=True)
class Questions:
    """The data that are needed in addition to the flavors.

    :ivar access: ids of flavors whose project list is needed.
    :ivar users: ids of flavors whose instances must be counted.
    """

    access: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The answers to :class:`Questions`.

    :ivar access: ids of projects, by flavor id.
    :ivar users: number of instances, by flavor id.
    """

    access: Mapping[str, frozenset[str]] = field(default_factory=dict)
    users: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FlavorPlan:
    """A flavor plan.

    :ivar operations: in the order in which they are carried out.
    :ivar unchanged: names of flavors that need no operation.
    """

    operations: tuple[FlavorOperation, ...]
    findings: tuple[Finding, ...]
    unchanged: tuple[str, ...] = ()


def questions(wanted: Sequence[WantedFlavor], present: Sequence[PresentFlavor], choices: FlavorChoices) -> Questions:
    """Return the data that are needed to compare these flavors."""
    by_name = {flavor.name: flavor for flavor in present}
    access, users = set(), set()
    for flavor in wanted:
        current = by_name.get(flavor.name)
        replaced = flavor.name in choices.replace
        if current is None or (replaced and _may_change(current, choices) and _differences(flavor, current)):
            users |= {current.id} if current else set()
        elif (
            _may_change(current, choices)
            and not _differences(flavor, current)
            and _access_in_doubt(flavor, current, choices)
        ):
            access.add(current.id)
    if choices.prune:
        users |= {flavor.id for flavor in _superfluous(wanted, present)}
    return Questions(access=frozenset(access), users=frozenset(users))


def compare(
    wanted: Sequence[WantedFlavor],
    present: Sequence[PresentFlavor],
    choices: FlavorChoices = FlavorChoices(),
    answers: Answers = Answers(),
) -> FlavorPlan:
    """Return the plan that syncs ``present`` with ``wanted``. Flavors that gpustack does not own are left alone."""
    by_name = {flavor.name: flavor for flavor in present}
    ids = {flavor.id: flavor for flavor in present}
    operations: list[FlavorOperation] = []
    findings: list[Finding] = []
    unchanged: list[str] = []
    for flavor in wanted:
        if (current := by_name.get(flavor.name)) is None:
            if other := ids.get(flavor.id or ""):
                findings.append(finding(Code.FLAVOR_ID_TAKEN, place=flavor.name, id=flavor.id, other=other.name))
            else:
                operations.append(_create(flavor, why="it is in the spec and not in the cloud"))
            continue
        changes, problems = _of_one(flavor, current, choices, answers)
        operations += changes
        findings += problems
        if not changes and not problems:
            unchanged.append(flavor.name)
    removed, problems = _pruned(wanted, present, choices, answers)
    replaced = {op.name for op in operations if isinstance(op, DeleteFlavor)}
    in_use = {entry.place for entry in findings if entry.code == Code.FLAVOR_IN_USE_NOT_REPLACED}
    needless = sorted(choices.replace - replaced - in_use)
    findings += [finding(Code.FLAVOR_WITHOUT_REPLACEMENT, place=name) for name in needless]
    return FlavorPlan(operations=(*operations, *removed), findings=(*findings, *problems), unchanged=tuple(unchanged))


def _of_one(
    flavor: WantedFlavor, current: PresentFlavor, choices: FlavorChoices, answers: Answers
) -> tuple[list[FlavorOperation], list[Finding]]:
    if not _may_change(current, choices):
        return [], [finding(Code.FLAVOR_NAME_TAKEN, place=flavor.name)]
    if differences := _differences(flavor, current):
        if flavor.name not in choices.replace:
            text = "; ".join(differences)
            return [], [finding(Code.FLAVOR_SIZES_FIXED, place=flavor.name, differences=text, name=flavor.name)]
        if answers.users[current.id]:
            users = counted(answers.users[current.id], "instance")
            return [], [finding(Code.FLAVOR_IN_USE_NOT_REPLACED, place=flavor.name, users=users)]
        return [
            DeleteFlavor(why="it is replaced by one of other sizes", flavor=current),
            _create(flavor, why="it replaces the one before"),
        ], []
    change = _change(flavor, current, choices, answers)
    findings = [finding(Code.FLAVOR_HALF_MADE, place=flavor.name, name=flavor.name)] if current.half_made else []
    return ([change] if change else []), findings


def _may_change(current: PresentFlavor, choices: FlavorChoices) -> bool:
    return current.ours or choices.adopt


def _differences(flavor: WantedFlavor, current: PresentFlavor) -> list[str]:
    """Describe the differences that cannot be changed in place."""
    wanted_sizes, current_sizes = flavor.sizes.to_dict(), current.sizes.to_dict()
    texts = [
        f"{size} is {current_sizes[size]}, wanted is {value}"
        for size, value in wanted_sizes.items()
        if current_sizes[size] != value
    ]
    if flavor.public != current.public:
        texts.append("it is public" if current.public else "it is private")
    if flavor.id is not None and flavor.id != current.id:
        texts.append(f"its id is {current.id}, wanted is {flavor.id}")
    return texts


def _access_in_doubt(flavor: WantedFlavor, current: PresentFlavor, choices: FlavorChoices) -> bool:
    # A flavor that is adopted may have the mark of an earlier time.
    known = current.ours and not choices.check_access and current.extra_specs.get(ACCESS)
    return flavor.access is not None and known != access_mark(flavor.access)


def _create(flavor: WantedFlavor, *, why: str) -> CreateFlavor:
    made = PresentFlavor(
        id=flavor.id or "",
        name=flavor.name,
        sizes=flavor.sizes,
        public=flavor.public,
        description=flavor.marked_description,
        extra_specs={**flavor.extra_specs, **flavor.marks},
    )
    return CreateFlavor(why=why, flavor=_with_access(made, flavor.access))


def _with_access(flavor: PresentFlavor, access: Sequence[str] | None) -> PresentFlavor:
    """The flavor with its projects and their mark; None for a public one."""
    if access is None:
        return flavor
    return replace(flavor, access=frozenset(access), extra_specs={**flavor.extra_specs, ACCESS: access_mark(access)})


def _change(
    flavor: WantedFlavor, current: PresentFlavor, choices: FlavorChoices, answers: Answers
) -> ChangeFlavor | None:
    own = {**flavor.extra_specs, **flavor.marks}
    others = {k: v for k, v in current.extra_specs.items() if k not in current.owned and not is_sets_mark(k)}
    after = replace(current, description=flavor.marked_description, extra_specs={**own, **others, **own})
    before = current
    if _access_in_doubt(flavor, current, choices):
        before, after = replace(current, access=answers.access[current.id]), _with_access(after, flavor.access)
    return None if after == before else ChangeFlavor(why=_why(current, choices), before=before, flavor=after)


def _why(current: PresentFlavor, choices: FlavorChoices) -> str:
    if current.half_made:
        return "it is only half made"
    return "it is not as the spec has it" if current.managed else "adopted"


def _superfluous(wanted: Sequence[WantedFlavor], present: Sequence[PresentFlavor]) -> Iterator[PresentFlavor]:
    names = {flavor.name for flavor in wanted}
    for flavor in present:
        if flavor.ours and flavor.name not in names and flavor.extra_specs.get(ORIGIN) != "hand":
            yield flavor


def _pruned(
    wanted: Sequence[WantedFlavor], present: Sequence[PresentFlavor], choices: FlavorChoices, answers: Answers
) -> tuple[list[DeleteFlavor], list[Finding]]:
    operations: list[DeleteFlavor] = []
    findings: list[Finding] = []
    for flavor in _superfluous(wanted, present):
        users = answers.users[flavor.id] if choices.prune else 0
        if users:
            text = counted(users, "instance")
            findings.append(finding(Code.FLAVOR_IN_USE_NOT_REMOVED, place=flavor.name, users=text, name=flavor.name))
        elif choices.prune:
            operations.append(DeleteFlavor(why="it is not in the spec, and no instance uses it", flavor=flavor))
        else:
            code = Code.FLAVOR_HALF_MADE if flavor.half_made else Code.FLAVOR_NOT_IN_SPEC
            findings.append(finding(code, place=flavor.name, name=flavor.name))
    return operations, findings
