"""The archive of a support request: its files, masked, and the manifest. Pure, but for writing the archive."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpustack.base.columns import Column, described
from gpustack.base.errors import ApplyError
from gpustack.base.files import file_error, write_atomic
from gpustack.nova_options.masking import Masking

MOST = 50 << 20
"""The permitted size of all files together, and so of the archive, in bytes."""
_FRAME, _MANIFEST = 2048, 1 << 20
"""The bytes of a file in an archive beside its content, and those that are kept for the manifest."""


@dataclass(frozen=True, kw_only=True)
class BundlePart:
    """A file of the bundle.

    :ivar data: a text, or plain data for JSON.
    :ivar content: the masked data.
    :ivar masked: the number of masked values.
    :ivar omitted: why the file is left out; empty if it is not.
    """

    path: str
    data: Any = None
    content: bytes = b""
    masked: int = 0
    omitted: str = ""


COLUMNS: tuple[Column[BundlePart], ...] = (
    Column("path", lambda part: part.path, "Path"),
    Column("size", lambda part: None if part.omitted else len(part.content), "Size"),
    Column("masked", lambda part: part.masked, "Masked"),
    Column("omitted", lambda part: part.omitted or None, "Left out", lambda part: part.omitted or " "),
)


def files(parts: Iterable[BundlePart], masking: Masking) -> list[BundlePart]:
    """Mask the parts, the most important first, and add the manifest."""
    collected = list(parts)
    masking.learn([[part.path, part.data, part.omitted] for part in collected])
    made: list[BundlePart] = []
    left = MOST - _MANIFEST
    for part in collected:
        before = masking.count
        path, omitted, data = masking.text(part.path), masking.text(part.omitted), masking.data(part.data)
        content = (data if isinstance(data, str) else json.dumps(data, indent=1)).encode()
        if len(content) + _FRAME > left and not omitted:
            omitted = f"larger than the rest of {MOST >> 20} MiB"
        content = b"" if omitted else content
        left -= len(content) + _FRAME
        masked = part.masked + masking.count - before
        made.append(replace(part, path=path, content=content, masked=masked, omitted=omitted))
    rows = [described(COLUMNS, part) | {"sha256": hashlib.sha256(part.content).hexdigest()} for part in made]
    manifest = {"gpustack_support_bundle": 1, "names": "kept" if masking.keep_names else "pseudonyms", "files": rows}
    return [*made, BundlePart(path="manifest.json", content=json.dumps(manifest, indent=1).encode())]


def write(path: Path, bundle: Sequence[BundlePart]) -> None:
    """Write the archive: mode 0600, complete or not at all, never over an existing file.

    :raises ApplyError: if it can't be written.
    """
    packed = io.BytesIO()
    top = path.name.removesuffix(".gz").removesuffix(".tar")
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
        for part in bundle:
            if not part.omitted:
                entry = tarfile.TarInfo(f"{top}/{part.path}")
                entry.size, entry.mode = len(part.content), 0o600
                archive.addfile(entry, io.BytesIO(part.content))
    try:
        write_atomic(path, [packed.getvalue()], mode=0o600, new=True)
    except OSError as error:
        raise file_error(ApplyError, "the bundle can't be written", path, error, state="nothing was written") from error
