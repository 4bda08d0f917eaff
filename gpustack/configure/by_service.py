"""The options that concern GPUs, service by service: which service reads, sets or lacks each."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpustack.base.by_key import by_key
from gpustack.configure.sources import PLACEMENT, READERS, Source, kinds
from gpustack.nova_options import releases
from gpustack.nova_options.config import Setting
from gpustack.nova_options.options import Option, Release

SERVICES = (*READERS, PLACEMENT)


@dataclass(frozen=True, kw_only=True)
class OptionByService:
    """One option.

    :ivar states: by service: ``set``, ``differs`` (from another configuration), ``missing`` (another service sets it),
        ``default``, or ``not read`` (set for a service that does not read it); nothing for any other service.
    :ivar settings: the assignments, with their service.
    """

    option: Option
    states: Mapping[str, str]
    settings: tuple[tuple[str, Setting], ...]


def by_service(sources: Sequence[Source], release: Release) -> Iterator[OptionByService]:
    """The options of a release that concern GPUs."""
    of_nova, of_placement = releases.table(release), releases.table(release, "placement")
    for option in (option for table in (of_nova, of_placement) for option in table.named.values() if option.services):
        of_sources = [(source.readers or source.services, source.configuration.effective(option)) for source in sources]
        of_readers = [(reader, effective) for readers, effective in of_sources for reader in readers]
        found = by_key((reader, tuple(_plain(option, s.value) for s in effective)) for reader, effective in of_readers)
        settings = tuple((reader, setting) for reader, effective in of_readers for setting in effective)
        reading = [reader for reader in found if kinds([reader])[0] in option.services]
        given = {values for reader in reading for values in found[reader] if values}
        states = {}
        for reader, values in found.items():
            if reader not in reading:
                states[reader] = "not read" if any(values) else ""
            elif not any(values):
                states[reader] = "missing" if given else "default"
            else:
                states[reader] = "differs" if len(given) > 1 or not all(values) else "set"
        yield OptionByService(option=option, states=states, settings=settings)


def _plain(option: Option, value: str) -> str:
    """A value without differences of spelling that mean nothing to Nova."""
    with contextlib.suppress(ValueError, RecursionError):
        value = json.dumps(json.loads(value), sort_keys=True)
    return value.lower() if option.kind == "bool" else value
