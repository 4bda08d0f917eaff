"""The result of the module ``gpustack_nova_config``. A host may be hostile, so size and content are validated."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from gpustack.base.errors import NovaConfigError

_MAX_FILES = 256
_MAX_CHARACTERS = 4 << 20
_PATH = (
    r"^/etc/(nova/nova[^/\x00-\x1f]*(\.conf\.d/[^/\x00-\x1f]+)?\.conf|kolla/nova-[^/\x00-\x1f]+/nova\.conf"
    r"|nova/provider_config/gpustack\.yaml)$"
)
"""The only files that the module reads."""
_Word = Annotated[str, StringConstraints(max_length=4096)]
_Words = Annotated[list[_Word], Field(max_length=256)]


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)

    path: Annotated[str, StringConstraints(max_length=4096, pattern=_PATH)]
    text: Annotated[str, StringConstraints(max_length=_MAX_CHARACTERS)]


class Answer(BaseModel):
    """What one host has of Nova.

    :ivar files: the files that services read, of which only the lines about PCI devices and filters are left.
    :ivar units: the systemd units of Nova.
    :ivar engine: the container engine; empty when there is none.
    :ivar started: for each service that runs, the words of its command line that name files and directories.
    :ivar pending: the services whose restart an interrupted run still owes.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    files: Annotated[list[_File], Field(max_length=_MAX_FILES)]
    units: _Words = []
    engine: Literal["", "docker", "podman"] = ""
    started: Annotated[dict[_Word, _Words], Field(max_length=16)] = {}
    pending: _Words = []

    @property
    def texts(self) -> dict[str, str]:
        """The text of each file by its path."""
        return {file.path: file.text for file in self.files}

    @classmethod
    def parse(cls, raw: object, hostname: str) -> Self:
        """Validate a result of the module.

        :raises NovaConfigError: when the result is malformed or too large.
        """
        try:
            answer = cls.model_validate(raw)
        except ValidationError as error:
            (first, *_) = error.errors(include_url=False, include_context=False, include_input=False)
            place = ".".join(str(part)[:40] for part in first["loc"])
            raise _refused(hostname, f"{place}: {first['msg'].lower()}") from None
        if sum(len(file.text) for file in answer.files) > _MAX_CHARACTERS:
            raise _refused(hostname, f"the files have more than {_MAX_CHARACTERS} characters")
        return answer


def _refused(hostname: str, why: str) -> NovaConfigError:
    return NovaConfigError(
        f"unexpected answer of gpustack_nova_config: {why}",
        where=hostname,
        remedy="check the host before you trust it: the module answers with Nova's own files only",
    )
