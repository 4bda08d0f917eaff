"""The schema of a journal's lines: others can edit the file, and undo writes databases and Placement from it."""

from datetime import datetime
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from gpustack.cloud.placement_documents import Consumer, Id

Name = Annotated[str, StringConstraints(max_length=255)]
Value = Annotated[str, StringConstraints(max_length=1 << 24)] | int | float | bool | datetime | None
"""A column's value; Nova's TEXT columns hold 64 KiB, MEDIUMTEXT 16 MiB."""

RowId = Annotated[int, Field(ge=0, lt=1 << 63)]


class _Line(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class ChangeLine(_Line):
    """A change; tables and columns are :class:`gpustack.repair.repair.Change`'s to check."""

    table: Name
    id: RowId
    seen: dict[str, Value]
    new: dict[str, Value]


class AllocationLine(_Line):
    """An allocation that was taken away in Placement."""

    consumer: Id
    provider: Id
    before: Consumer

    @model_validator(mode="after")
    def _had_it(self) -> Self:
        if self.provider not in self.before.allocations:
            raise ValueError("the consumer had no allocation of the provider")
        return self


class HeldLine(_Line):
    """A row that a migration held, on one of its hosts."""

    host: Name
    id: RowId
    compute_node_id: RowId
    address: Name
    status: Name
    instance_uuid: Name | None
    request_id: Name | None
    deleted: RowId | None


class OriginLine(_Line):
    """The compute node and the owner of the rows at the repair."""

    node_id: RowId
    node_uuid: Name | None
    node_deleted: bool
    owner: Annotated[tuple[Name | None, Name | None, Name], Field(strict=False)] | None


class Begin(_Line):
    """The line of a repair that is about to be done."""

    begin: int
    cell: Name
    database: Name
    verdict: dict[str, object]
    changes: Annotated[list[ChangeLine], Field(max_length=10_000)]
    before: tuple[dict[str, Value], ...] = Field(strict=False)
    allocation: AllocationLine | None = None
    held: Annotated[list[HeldLine], Field(max_length=10_000)] | None = None
    """None in a journal of a gpustack that did not record it."""
    origin: OriginLine | None = None

    @model_validator(mode="after")
    def _rows_are_whole(self) -> Self:
        if len(self.before) != len(self.changes) or any(
            not change.new.keys() <= row.keys() for change, row in zip(self.changes, self.before, strict=False)
        ):
            raise ValueError("a change without the row as it was before")
        return self
