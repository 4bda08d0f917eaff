"""The spec of a run, for its record."""

from pathlib import Path

from gpustack.base.files import digest
from gpustack.connect.playbooks.results import SpecSeen
from gpustack.spec.load import load_spec
from gpustack.spec.model import hosts_of


def seen(path: Path, sha256: str = "") -> SpecSeen:
    """A spec with the hosts that its record expects; ``sha256`` is that of an earlier reading.

    :raises gpustack.base.errors.SpecError: if it can't be used.
    """
    return SpecSeen(hosts=hosts_of(load_spec(path), None), path=str(path.absolute()), sha256=sha256 or digest(path))
