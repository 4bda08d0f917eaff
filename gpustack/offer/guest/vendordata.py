"""Vendor data of Nova (StaticJSON): a script that reports a guest's GPUs on its console.

Every guest of the cloud gets it. The script does nothing without a GPU, unless the flavor promises one. It is a script
and no cloud-config: a list of vendor cloud-config vanishes if the user's data has the same key. Nova puts the file
into config drives (nova-compute) and into the answers of the metadata service, complete and for each guest.
"""

import base64
import json
import re
import textwrap
import zlib
from collections.abc import Mapping
from email.message import Message
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from pathlib import Path

from gpustack.base.errors import NovaConfigError
from gpustack.base.files import data_dir, file_errors, read_text
from gpustack.base.text import quoted
from gpustack.configure.vendordata import parts
from gpustack.offer.guest import bundle
from gpustack.offer.guest.check import Promise, consoles
from gpustack.offer.guest.inside.report import START

KEY = "cloud-init"
_FILE_NAME = "gpustack-guest-check.sh"
_BOUNDARY = "==gpustack=="


def read(path: Path) -> dict[str, object]:
    """The vendor data of a file.

    :raises NovaConfigError: if the file can't be read, or is no JSON object.
    """
    try:
        with file_errors(NovaConfigError, "can't be read", path):
            document = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise NovaConfigError(f"is not valid JSON: {error}", where=str(path), remedy="correct the file") from error
    if not isinstance(document, dict):
        raise NovaConfigError("is not a JSON object", where=str(path), remedy="correct the file")
    return document


def render(flavors: Mapping[str, Promise], other: Mapping[str, object] | None = None) -> str:
    """The JSON file for ``[api] vendordata_jsonfile_path``.

    :param flavors: what the flavors promise, by their names in the cloud.
    :param other: vendor data to keep. Its part for cloud-init stays first; an earlier report script is replaced.
    :raises NovaConfigError: if the part for cloud-init is not text.
    """
    multipart = MIMEMultipart(boundary=_BOUNDARY)
    report = MIMEText(script(flavors), "x-shellscript", "us-ascii")
    report.add_header("Content-Disposition", "attachment", filename=_FILE_NAME)
    for part in (*_others(dict(other or {}).get(KEY)), report):
        multipart.attach(part)
    return json.dumps({**(other or {}), KEY: multipart.as_string()}, indent=2) + "\n"


def _others(data: object) -> list[Message]:
    """The parts of other vendor data for cloud-init: of a multipart document, else the text as one part.

    cloud-init finds the type of a part of text/plain by its first line (``cloudinit/user_data.py``).
    """
    if data is None:
        return []
    if not isinstance(data, str):
        remedy = "give cloud-init's vendor data as one text, not as a list"
        raise NovaConfigError(f"the vendor data for cloud-init is a {type(data).__name__}", remedy=remedy)
    if (found := parts(data)) is None:
        return [MIMEText(data, "plain", "utf-8")]
    return [part for part in found if part.get_filename() != _FILE_NAME]


def script(flavors: Mapping[str, Promise]) -> str:
    """The script of the vendor data, from ``gpustack/data/guest-report.sh``."""
    template = data_dir("guest-report.sh").read_text(encoding="ascii")
    packed = base64.b64encode(zlib.compress(bundle.program(flavors, "--report").encode("ascii"), 9)).decode("ascii")
    values = {
        "@CONSOLES@": "|".join(f"0x{vendor}:{f'0x{product}' if product else '*'}" for vendor, product in consoles()),
        # Names as cloud-init writes them in JSON.
        "@FLAVORS@": "|".join(quoted(json.dumps(name)[1:-1]) for name in flavors) or "''",
        "@START@": START,
        "@PROGRAM@": "\n".join(textwrap.wrap(packed, 100)),
        "@QUOTES@": '"""',
        "@END@": "END_OF_GPUSTACK",
    }
    return re.sub("|".join(values), lambda match: values[match.group()], template)
