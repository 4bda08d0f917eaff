"""The schema of Placement's answer for a consumer, with the fields that clean-up reads and writes back."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
"""A uuid; the pattern prevents a value that leads to another path of the API."""
ResourceClass = Annotated[str, StringConstraints(pattern=r"^[A-Z0-9_]{1,255}$")]
Owner = Annotated[str, StringConstraints(max_length=255)]


class _Document(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class Held(_Document):
    """An allocation of one resource provider."""

    resources: Annotated[dict[ResourceClass, Annotated[int, Field(ge=0, lt=1 << 31)]], Field(max_length=1000)]


class Consumer(_Document):
    """``GET /allocations/CONSUMER``; all but ``allocations`` is missing where there are none."""

    allocations: Annotated[dict[Id, Held], Field(max_length=1000)]
    consumer_generation: Annotated[int, Field(ge=0, lt=1 << 63)] | None = None
    project_id: Owner | None = None
    user_id: Owner | None = None
