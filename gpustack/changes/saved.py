"""Saved plans: the changes of a plan in a file, for a run that makes these changes and no others."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from gpustack.base.errors import JournalError
from gpustack.base.files import read_text, starts_with
from gpustack.base.validation import first_problem
from gpustack.changes.change import CloudChange
from gpustack.changes.journal import Cloud, JournalLine, PlannedChange, Text, refuse_alike, refuse_shared
from gpustack.changes.undo import Kinds, change_of

AGAIN = "make the plan again: gpustack cloud plan SPEC --out FILE"
_MOST = 64 << 20
_KEY = '{"gpustack_plan":'


class SavedPlan(JournalLine):
    """A plan in a file.

    :ivar spec: the path of the spec; ``spec_sha256`` is its digest when the plan was made.
    """

    gpustack_plan: Literal[1] = 1
    cloud: Cloud
    spec: Text
    spec_sha256: Text
    changes: Annotated[list[PlannedChange], Field(max_length=100_000)]


def is_saved_plan(path: Path) -> bool:
    """Whether a file is a saved plan; a spec is none.

    :raises OSError: if it cannot be read.
    """
    return starts_with(path, _KEY)


def load(path: Path, kinds: Kinds) -> tuple[SavedPlan, Sequence[CloudChange]]:
    """Read a plan.

    :raises JournalError: if the file is not one, others can write it, or gpustack does not make such changes.
    """
    try:
        plan = SavedPlan.model_validate_json(read_text(path, _MOST, check=refuse_shared))
        refuse_alike(plan.changes)
    except ValueError as error:  # pydantic's errors too
        what = f"not a plan of this version: {first_problem(error)}"
        raise JournalError(what, where=str(path), remedy=AGAIN) from error
    return plan, [change_of(line, kinds, str(path)) for line in plan.changes]
