"""The types of values in the facts of a host, and the base of their models."""

from functools import cached_property
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from gpustack.hosts.facts.collector.limits import TEXT_LIMIT

Hex4 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4}$")]
Hex6 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{6}$")]
Bdf = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$")]
RootBus = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4,8}:[0-9a-f]{2}$")]
Module = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+-]{1,64}$")]
TypeNumber = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,127}$")]
KernelRelease = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+~-]{0,127}$")]
HostName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]([A-Za-z0-9._-]{0,253})$")]
Line = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]*$", max_length=4096)]
# Kernel arguments may be separated by tabs.
Arguments = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*$", max_length=16384)]
Message = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]*$", max_length=512)]
Number = Annotated[int, Field(ge=-(1 << 63), lt=1 << 64)]
Mode = Annotated[str, StringConstraints(pattern=r"^[0-7]{3,4}$")]
FileText = Annotated[str, StringConstraints(max_length=TEXT_LIMIT)]
HostPath = Annotated[str, StringConstraints(pattern=r"^/[^\x00-\x1f\x7f]*$", max_length=4096)]

_fields_set: dict[frozenset[str], set[str]] = {}
_MOST_SETS = 1024


class FactsModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", ignored_types=(cached_property,))

    def model_post_init(self, _context: object) -> None:
        """Share the names of the given fields with other objects: they take a third of a host's memory."""
        names = frozenset(self.__pydantic_fields_set__)
        if len(_fields_set) < _MOST_SETS or names in _fields_set:
            shared = _fields_set.setdefault(names, self.__pydantic_fields_set__)
            object.__setattr__(self, "__pydantic_fields_set__", shared)
