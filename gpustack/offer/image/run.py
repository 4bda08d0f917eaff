"""Carry changes of images out, and undo them.

Each image is read again directly before its change, which Glance makes atomically. If one of the properties has another
value by then, the image is left alone.
"""

import enum
from dataclasses import dataclass

from gpustack.cloud.image import ImageCloud
from gpustack.cloud.session import Refused
from gpustack.offer.image.change import SetProperties
from gpustack.offer.image.journal import ImageJournal


class Result(enum.StrEnum):
    """The result of a change."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    """The image has these values already."""
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a change."""

    operation: SetProperties
    result: Result
    detail: str = ""


def carry_out(api: ImageCloud, operation: SetProperties, journal: ImageJournal | None = None) -> Outcome:
    """Make one change.

    :param journal: records the change; None for an undo, which the journal of the change describes.
    :raises gpustack.base.errors.CloudError: if Glance cannot be reached.
    :raises gpustack.base.errors.JournalError: if the journal cannot be written.
    """
    image = api.image(operation.image)
    if image is None:
        return Outcome(operation=operation, result=Result.SKIPPED, detail="the image does not exist any more")
    if operation.owner and image.owner != operation.owner:
        detail = f"its project was {operation.owner} and is {image.owner or 'unknown'}"
        return Outcome(operation=operation, result=Result.SKIPPED, detail=detail)
    if all(image.properties.get(key) == value for key, value in operation.after.items()):
        return Outcome(operation=operation, result=Result.UNCHANGED)
    other = [key for key, value in operation.before.items() if image.properties.get(key) != value]
    if other:
        detail = f"changed meanwhile: {', '.join(other)}"
        return Outcome(operation=operation, result=Result.SKIPPED, detail=detail)
    number = journal.begin(operation) if journal else 0
    try:
        api.change(operation)
    except Refused as error:
        outcome = Outcome(operation=operation, result=Result.FAILED, detail=error.what)
    else:
        outcome = Outcome(operation=operation, result=Result.CHANGED)
    if journal:
        journal.end(number, outcome.result.value, outcome.detail)
    return outcome
