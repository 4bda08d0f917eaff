"""Vendor data of Nova for guests (``gpustack guest vendordata``): the options, and the parts for cloud-init."""

import email
from collections.abc import Iterator
from email.message import Message

from gpustack.base.errors import NovaConfigError
from gpustack.configure.packing import Advised
from gpustack.nova_options import releases
from gpustack.spec.model import Spec

PATH = releases.option("api/vendordata_jsonfile_path")
PROVIDERS = releases.option("api/vendordata_providers")
STATIC = "StaticJSON"
_COMMENT = "Copy the file of `gpustack guest vendordata` to this path first: Nova reads it for each instance."


def parts(text: str) -> list[Message] | None:
    """The parts of a MIME multipart document for cloud-init, at every level; None if the text is no such document.

    :raises NovaConfigError: if the parts are nested too deeply.
    """
    try:
        message = email.message_from_string(text)
        return [part for part in message.walk() if not part.is_multipart()] if message.is_multipart() else None
    except RecursionError as error:
        raise NovaConfigError("the vendor data is nested too deeply", remedy="use one multipart document") from error


def advised(spec: Spec) -> Iterator[Advised]:
    """The option to set."""
    if spec.nova is not None and spec.nova.vendordata is not None:
        yield Advised(option=PATH, value=spec.nova.vendordata, comment=_COMMENT)
