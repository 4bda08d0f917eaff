"""Validate the content of initramfs images that a host reports, before verification uses it."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, RootModel, StringConstraints, ValidationError

from gpustack.base.errors import HostError
from gpustack.base.validation import problem

_Text = Annotated[str, StringConstraints(max_length=1 << 17)]
_Names = Annotated[tuple[_Text, ...], Field(max_length=65536)]


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore")

    text: _Text = ""


class _Image(BaseModel):
    model_config = ConfigDict(extra="ignore")

    error: _Text | None = None
    releases: _Names = ()
    modules: _Names = ()
    files: Annotated[dict[_Text, _File], Field(max_length=65536)] = {}


class _Images(RootModel[Annotated[dict[_Text, _Image], Field(max_length=256)]]):
    """By kernel release."""


def checked_images(raw: Any, host: str) -> Mapping[str, Mapping[str, Any]] | None:  # noqa: ANN401 - a host's answer
    """Return the content of images by kernel release; None if the images were not read.

    :raises HostError: if the host's answer does not have the expected form or size.
    """
    if raw is None:
        return None
    try:
        images: dict[str, dict[str, object]] = _Images.model_validate(raw).model_dump(exclude_unset=True)
    except ValidationError as error:
        raise HostError(
            f"unexpected content of initramfs images: {problem(error.errors()[0])}",
            where=host,
            remedy="check the host before you trust it, and run the playbook again",
        ) from None
    return images
