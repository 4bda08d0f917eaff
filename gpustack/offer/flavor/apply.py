"""Read the flavors of a cloud, and plan."""

from collections.abc import Iterable, Sequence

from gpustack.base.errors import FlavorError
from gpustack.base.text import counted
from gpustack.cloud.flavors import FlavorCloud
from gpustack.cloud.identity import project_ids
from gpustack.cloud.session import each
from gpustack.offer.flavor.compare import Answers, FlavorChoices, FlavorPlan, Questions, compare, questions
from gpustack.offer.flavor.flavors import PresentFlavor, WantedFlavor
from gpustack.offer.flavor.operations import DeleteFlavor, FlavorOperation

Flavors = FlavorCloud[PresentFlavor]
NOTHING = FlavorChoices()


def plan(
    api: Flavors,
    wanted: Sequence[WantedFlavor],
    choices: FlavorChoices = NOTHING,
    *,
    present: Sequence[PresentFlavor] | None = None,
) -> FlavorPlan:
    """Read the cloud's flavors and plan. If there is nothing to do, this takes one listing, and the projects' ids.

    :param present: the cloud's flavors, if they were read.
    :raises CloudError: if the API cannot be read.
    :raises PlanError: if a project that may use a flavor does not exist.
    """
    present = api.flavors() if present is None else present
    ids = project_ids((project for flavor in wanted for project in flavor.access or ()), api.project)
    wanted = [flavor.with_ids(ids) for flavor in wanted]
    return compare(wanted, present, choices, answers(api, questions(wanted, present, choices)))


def deletion(api: Flavors, flavor: PresentFlavor, *, force: bool) -> DeleteFlavor:
    """The operation that deletes a flavor by name.

    :param force: whether flavors that are in use, or that gpustack did not create, are deleted too.
    :raises FlavorError: if the flavor must not be deleted.
    :raises CloudError: if its instances cannot be counted.
    """
    if not force:
        if not flavor.ours:
            raise FlavorError(f"gpustack did not make {flavor.name}", remedy="--force deletes it")
        if users := api.users(flavor.id):
            remedy = "--force deletes it; its instances keep running, without a flavor in the list"
            raise FlavorError(f"{flavor.name} is used by {counted(users, 'instance')}", remedy=remedy)
    return DeleteFlavor(why="as asked", flavor=flavor, force=force)


def answers(api: Flavors, questions: Questions) -> Answers:
    """Answer questions, with one request for each (a listing for ``users``).

    :raises CloudError: if a question cannot be answered.
    """
    access, users = map(sorted, (questions.access, questions.users))
    return Answers(
        access=dict(zip(access, each(api.access, access), strict=True)),
        users=dict(zip(users, each(api.users, users), strict=True)),
    )


def resulting(present: Sequence[PresentFlavor], operations: Iterable[FlavorOperation]) -> tuple[PresentFlavor, ...]:
    """The flavors after operations."""
    flavors = {flavor.name: flavor for flavor in present}
    for operation in operations:
        if isinstance(operation, DeleteFlavor):
            del flavors[operation.name]
        else:
            flavors[operation.name] = operation.flavor
    return tuple(flavors.values())
