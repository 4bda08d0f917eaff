"""The schema of a journal's lines."""

import hashlib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from gpustack.changes.change import ChangeResult

Text = Annotated[str, StringConstraints(max_length=4096)]
Key = Annotated[str, StringConstraints(max_length=1024, min_length=1)]
VERSION = 1


class JournalLine(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class Cloud(JournalLine):
    """The cloud of a run, without anything secret.

    :ivar auth_url: Keystone's address; empty for a run that knows Nova's databases alone.
    :ivar databases: the names of their cells, for such a run.
    """

    auth_url: Text = ""
    region: Text = ""
    user: Text = ""
    project: Text = ""
    databases: Text = ""

    @property
    def key(self) -> str:
        """The identity of the cloud: runs with the same key change the same objects. Its version may be left out."""
        address = self.auth_url.lower().rstrip("/").removesuffix("/v3").rstrip("/") or self.databases
        return hashlib.sha256(f"{address}\n{self.region}".encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return f"{self.auth_url} {self.region}".strip() or self.databases


class PlannedChange(JournalLine):
    """A planned change; its kind checks the values."""

    key: Key
    kind: Key
    id: Text
    name: Text
    why: Text
    seen: Any
    wanted: Any
    needs: Annotated[list[Key], Field(max_length=10_000)]
    after: Annotated[list[Key], Field(max_length=10_000)] = []
    about: dict[Key, Text]


class RunHead(JournalLine):
    """The first line: the circumstances of a run, and all its changes.

    :ivar command: the command without its values: ``flavor apply``.
    :ivar at: the time of the first line, in ISO 8601.
    :ivar spec: the path of the spec; empty without one.
    :ivar spec_sha256: the digest of the spec as it was read.
    :ivar undoes: the ID of the run that this one reverts.
    :ivar completes: the ID of the interrupted run that this one completes; their changes have the same keys.
    """

    gpustack_change: Literal[1] = 1
    id: Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z-]{1,64}$")]
    command: Text
    user: Text = ""
    host: Text = ""
    cloud: Cloud = Cloud()
    spec: Text = ""
    spec_sha256: Text = ""
    undoes: Text = ""
    completes: Text = ""
    at: Text = ""
    changes: Annotated[list[PlannedChange], Field(max_length=100_000)] = []


class RunLine(JournalLine):
    """A line after the first: the begin or the end of a change, or the end of the run.

    :ivar planned: the change that begins, if it was planned after the run had begun.
    :ivar payload: what the undo of the change that begins needs; its kind checks it.
    """

    begin: Text = ""
    planned: PlannedChange | None = None
    payload: dict[str, Any] | None = None
    end: Text = ""
    result: Annotated[str, Field(pattern="^(|" + "|".join(ChangeResult) + ")$")] = ""
    detail: Annotated[str, StringConstraints(max_length=1 << 16)] = ""
    id: Text = ""
    closed: bool = False
