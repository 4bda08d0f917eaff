"""Carry operations out so that no incomplete GPU flavor remains unnoticed.

The order of requests makes an interruption harmless. A flavor is created with the mark in its description. One request
then sets all extra specs, including the mark of completeness. Access is granted last, and its mark is written after
that. If a request fails, the created flavor is deleted again. If that fails too, or if another run may have created the
flavor, the next run finds it by its mark and completes it.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from gpustack.base.errors import CloudError, FlavorError
from gpustack.cloud.flavors import FlavorCloud
from gpustack.cloud.session import Refused, Unanswered
from gpustack.offer.flavor.compare import Answers, FlavorChoices, FlavorPlan, Questions, compare, counted, questions
from gpustack.offer.flavor.flavors import ACCESS, ACCESS_CHANGES, PresentFlavor, WantedFlavor
from gpustack.offer.flavor.operations import ChangeFlavor, CreateFlavor, DeleteFlavor, FlavorOperation

Flavors = FlavorCloud[PresentFlavor]
_SERVER_ERRORS = 500
NOTHING = FlavorChoices()
JOBS = 8
"""The number of flavors that are processed at the same time."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An operation that failed or was not started.

    :ivar name: the name of the flavor.
    """

    name: str
    error: CloudError | FlavorError


def plan(
    api: Flavors, wanted: Sequence[WantedFlavor], choices: FlavorChoices = NOTHING, *, jobs: int = JOBS
) -> FlavorPlan:
    """Read the cloud's flavors and plan. If there is nothing to do, this takes one listing.

    :param jobs: how many requests run at the same time.
    :raises CloudError: if the API cannot be read.
    """
    present = api.flavors()
    return compare(wanted, present, choices, answers(api, questions(wanted, present, choices), jobs=jobs))


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
            raise FlavorError(f"{flavor.name} is used by {counted(users)}", remedy=remedy)
    return DeleteFlavor(why="as asked", flavor=flavor)


def answers(api: Flavors, questions: Questions, *, jobs: int = JOBS) -> Answers:
    """Answer questions, with one request for each (a listing for ``users``).

    :raises CloudError: if a question cannot be answered.
    """
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        access = dict(zip(sorted(questions.access), pool.map(api.access, sorted(questions.access)), strict=True))
        users = dict(zip(sorted(questions.users), pool.map(api.users, sorted(questions.users)), strict=True))
        projects = dict(zip(sorted(questions.projects), pool.map(api.project, sorted(questions.projects)), strict=True))
    return Answers(access=access, users=users, projects=projects)


def apply(
    api: Flavors,
    operations: Sequence[FlavorOperation],
    *,
    jobs: int = JOBS,
    done: Callable[[FlavorOperation], None] = lambda operation: None,
) -> tuple[Failure, ...]:
    """Carry operations out: those of one flavor in order, several flavors at the same time.

    After a request without an answer, no further flavor is started. A refused request does not affect other flavors.

    :param done: is called with each operation that was carried out, from several threads.
    :returns: the failures with their reasons, including flavors that were not started.
    """
    stop = threading.Event()
    failures: list[Failure] = []
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        futures = {pool.submit(_all, api, group, stop, done): group for group in _by_flavor(operations)}
        with _stopping(stop, futures):
            for future in as_completed(futures):
                error = future.result()
                if error is not None:
                    failures.append(Failure(name=futures[future][0].name, error=error))
    order = [operation.name for operation in operations]
    return tuple(sorted(failures, key=lambda failure: order.index(failure.name)))


@contextlib.contextmanager
def _stopping(stop: threading.Event, futures: Iterable[Future[Any]]) -> Iterator[None]:
    """On Ctrl-C, finish the flavors in progress and start no others."""
    try:
        yield
    except BaseException:
        stop.set()
        for future in futures:
            future.cancel()
        raise


def _by_flavor(operations: Sequence[FlavorOperation]) -> list[list[FlavorOperation]]:
    groups: dict[str, list[FlavorOperation]] = {}
    for operation in operations:
        groups.setdefault(operation.name, []).append(operation)
    return list(groups.values())


def _all(
    api: Flavors,
    operations: Sequence[FlavorOperation],
    stop: threading.Event,
    done: Callable[[FlavorOperation], None],
) -> CloudError | FlavorError | None:
    if stop.is_set():
        return CloudError("not begun, because a request before got no answer")
    try:
        for operation in operations:
            carry_out(api, operation)
            done(operation)
    except (CloudError, FlavorError) as error:
        if isinstance(error, Unanswered) or isinstance(error.__cause__, Unanswered):
            stop.set()
        return error
    return None


def carry_out(api: Flavors, operation: FlavorOperation) -> None:
    """Carry one operation out.

    :raises FlavorError: if a flavor could not be completed; the message has the resulting state.
    :raises CloudError: if the API refuses or does not answer.
    """
    if isinstance(operation, CreateFlavor):
        _create(api, operation)
    elif isinstance(operation, ChangeFlavor):
        _change(api, operation)
    else:
        api.delete(operation.flavor.id)


def _create(api: Flavors, operation: CreateFlavor) -> None:
    flavor_id = operation.id or str(uuid.uuid4())
    public = operation.access is None
    try:
        api.create(flavor_id, operation.name, operation.sizes, public=public, description=operation.description)
    except (Unanswered, Refused) as error:
        if isinstance(error, Refused) and error.status < _SERVER_ERRORS:
            raise
        # The flavor may exist although the service failed. With an id of the spec, another run may have created it.
        _take_back(api, operation, flavor_id, error, own=operation.id is None)
    try:
        specs = dict(operation.extra_specs)
        if operation.access_mark is not None and not operation.access:
            specs[ACCESS] = operation.access_mark
        if specs:
            api.set_extra_specs(flavor_id, specs)
        if operation.access:
            for project in sorted(operation.access):
                api.grant(flavor_id, project)
            if operation.access_mark is not None:
                api.set_extra_specs(flavor_id, {ACCESS: operation.access_mark})
    except CloudError as error:
        _take_back(api, operation, flavor_id, error, own=True)


def _take_back(api: Flavors, operation: CreateFlavor, flavor_id: str, reason: CloudError, *, own: bool) -> None:
    """Delete a flavor that could not be completed, unless its name or description shows another origin.

    :param own: whether a flavor with this id, name and description is certainly one that this run created; it is kept
        otherwise.
    :raises FlavorError: always; the message has the resulting state.
    """
    try:
        current = api.get(flavor_id)
        alike = current is not None and (current.name, current.description) == (operation.name, operation.description)
        if alike and own:
            api.delete(flavor_id)
    except CloudError as error:
        raise FlavorError(
            f"{operation.name} may be there half made, without its alias: {reason.what}; nor could it be removed: "
            f"{error.what}",
            remedy="`gpustack flavor apply` finishes a flavor of the spec;"
            f" `gpustack flavor delete {operation.name}` removes it",
        ) from reason
    if alike and not own:
        raise FlavorError(
            f"{operation.name} exists with the id {flavor_id}, created by this run or by another one at the same time;"
            f" it may be incomplete: {reason.what}",
            remedy="`gpustack flavor apply` completes a flavor of the spec, when no other run changes it",
        ) from reason
    raise FlavorError(
        f"{operation.name} was not created, and nothing is left of it: {reason.what}", remedy=reason.remedy
    ) from reason


def _change(api: Flavors, operation: ChangeFlavor) -> None:
    moves = operation.grant or operation.revoke
    try:
        for key in operation.unset_specs:
            api.unset_extra_spec(operation.id, key)
        specs = dict(operation.set_specs)
        if moves and operation.access_mark_before is not None and ACCESS not in operation.unset_specs:
            # If the run is interrupted here, the old mark would be wrong.
            specs[ACCESS] = ACCESS_CHANGES
        elif operation.access_mark is not None and not moves:
            specs[ACCESS] = operation.access_mark
        if specs:
            api.set_extra_specs(operation.id, specs)
        for project in sorted(operation.revoke):
            api.revoke(operation.id, project)
        for project in sorted(operation.grant):
            api.grant(operation.id, project)
        if moves and operation.access_mark is not None:
            api.set_extra_specs(operation.id, {ACCESS: operation.access_mark})
        if operation.description is not None:
            api.describe(operation.id, operation.description[0])
    except CloudError as error:
        raise FlavorError(
            f"{operation.name} was not changed, or not wholly: {error.what}",
            remedy=error.remedy or "run the command again: it goes on where this one stopped",
        ) from error
