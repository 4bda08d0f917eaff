"""What the given files of nova.conf show of nova-scheduler. They may be those of another service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gpustack.nova_options import releases
from gpustack.nova_options.config import files_of, read_files
from gpustack.nova_options.releases import Option

_IN_PLACEMENT = releases.option("filter_scheduler/pci_in_placement")
_FILTERS = releases.option("filter_scheduler/enabled_filters")
_ZONE = partial(Option, services=("api",), since=15)(
    group="DEFAULT", name="default_schedule_zone", kind="text", source="nova/conf/availability_zone.py"
)


@dataclass(frozen=True, kw_only=True)
class Scheduler:
    """Options of nova-scheduler, and of nova-api for it.

    :ivar by_devices: whether it schedules by Placement's devices; None if the files do not set it.
    :ivar filters: the enabled filters; None if the files do not set them.
    :ivar zone: the availability zone of instances that request none; empty for any.
    """

    by_devices: bool | None = None
    filters: frozenset[str] | None = None
    zone: str = ""

    def enables(self, name: str) -> bool | None:
        """Whether a filter is enabled; None if the files do not show it."""
        return None if self.filters is None else name in self.filters


def scheduler(paths: Sequence[Path]) -> Scheduler:
    """Read the files, or those in directories.

    :raises NovaConfigError: if a file cannot be read.
    """
    configuration = read_files([file for path in paths for file in files_of(path)])
    filters = configuration.value(_FILTERS)
    return Scheduler(
        by_devices=configuration.enabled(_IN_PLACEMENT) if configuration.value(_IN_PLACEMENT) is not None else None,
        filters=None if filters is None else frozenset(name.strip() for name in filters.split(",")),
        zone=configuration.value(_ZONE) or "",
    )
