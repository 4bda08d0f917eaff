"""What the given files of nova.conf show of nova-scheduler. They may be those of another service."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from gpustack.nova_options import releases
from gpustack.nova_options.config import files_of, read_files
from gpustack.nova_options.options import Option
from gpustack.nova_options.pci_values import EntryError, alias_of
from gpustack.spec.model import Placement, Spec

REPORT = releases.option("pci/report_in_placement")
SCHEDULE = releases.option("filter_scheduler/pci_in_placement")
SWITCHES: dict[Placement, Option] = {"report": REPORT, "schedule": SCHEDULE}
"""The option that each stage of PCI in Placement adds."""
CONFINED = releases.option("scheduler/limit_tenants_to_placement_aggregate")
DRIVER = releases.option("quota/driver")
_BY_IMAGE = ("image_metadata_prefilter", "query_placement_for_image_type_support")
UNIFIED = "nova.quota.UnifiedLimitsDriver"
"""The driver that enforces the limits in Keystone."""


@dataclass(frozen=True, kw_only=True)
class Scheduler:
    """Options of nova-scheduler, and of nova-api for it; None for those that the files do not show.

    :ivar by_devices: whether it schedules by Placement's devices.
    :ivar filters: the enabled filters, in their order.
    :ivar isolated: whether the traits of aggregates keep out instances that do not require them.
    :ivar by_project: whether the metadata of aggregates restricts projects to their hosts.
    :ivar required: whether a project without such an aggregate gets no host then.
    :ivar fallback: whether it asks Placement for ``VCPU`` too if an instance has dedicated processors.
    :ivar aliases: the names of the aliases; None if the files have none.
    :ivar candidates: the most candidates that Placement makes; None if it has no limit, or it is unknown.
    :ivar by_image: the options that keep images off hosts without traits for them.
    :ivar instances: the most instances of a host, which two filters compare.
    :ivar unified: whether nova-api enforces the limits in Keystone.
    :ivar zone: the availability zone of instances that request none; empty for any.
    :ivar unzoned: the name of the zone of hosts that are in none.
    """

    by_devices: bool | None = None
    filters: tuple[str, ...] | None = None
    isolated: bool | None = None
    by_project: bool | None = None
    required: bool | None = None
    fallback: bool | None = None
    aliases: frozenset[str] | None = None
    candidates: int | None = None
    by_image: tuple[str, ...] = ()
    instances: int = 50
    unified: bool | None = None
    zone: str = ""
    unzoned: str = "nova"

    def enables(self, name: str) -> bool | None:
        """Whether a filter is enabled; None if the files do not show it."""
        return None if self.filters is None else name in self.filters


def scheduler(paths: Sequence[Path]) -> Scheduler:
    """Read the files, or those in directories.

    :raises NovaConfigError: if a file cannot be read.
    """
    configuration = read_files([file for path in paths for file in files_of(path)])

    def value(path: str) -> str | None:
        return configuration.value(releases.option(path))

    def is_on(option: str, default: bool | None) -> bool | None:
        return default if value(option) is None else configuration.enabled(releases.option(option))

    filters = value("filter_scheduler/enabled_filters")
    # The files that set the filters are those of nova-scheduler: what they do not set is off.
    default = None if filters is None else False
    without_fallback = is_on("workarounds/disable_fallback_pcpu_query", default)
    aliases: set[str] = set()
    for setting in configuration.effective(releases.option("pci/alias")):
        with contextlib.suppress(EntryError):
            aliases.add(str(alias_of(setting.value).get("name", "")).strip())
    limit = value("placement/max_allocation_candidates") or ""
    most = value("filter_scheduler/max_instances_per_host") or ""
    return Scheduler(
        aliases=frozenset(aliases) or None,
        candidates=int(limit) if limit.isdecimal() else None,
        by_image=tuple(f"[scheduler] {name}" for name in _BY_IMAGE if is_on(f"scheduler/{name}", False)),
        instances=int(most) if most.isdecimal() else Scheduler.instances,
        by_devices=is_on("filter_scheduler/pci_in_placement", None),
        filters=None if filters is None else tuple(dict.fromkeys(map(str.strip, filters.split(",")))),
        isolated=is_on("scheduler/enable_isolated_aggregate_filtering", default),
        by_project=is_on(CONFINED.path, default),
        required=is_on("scheduler/placement_aggregate_required_for_tenants", default),
        fallback=None if without_fallback is None else not without_fallback,
        unified=None if (driver := value(DRIVER.path)) is None else driver.strip() == UNIFIED,
        zone=value("DEFAULT/default_schedule_zone") or "",
        unzoned=value("DEFAULT/default_availability_zone") or "nova",
    )


def by_devices(known: Scheduler | None, spec: Spec | None) -> bool | None:
    """Whether Nova schedules by Placement's devices: by the configuration, else by the spec; None if unknown.

    :param known: the options of nova-scheduler; None without configuration files.
    """
    if known is not None and known.by_devices is not None:
        return known.by_devices
    return None if spec is None or spec.nova is None else wanted_stage(spec) == "schedule"


def wanted_stage(spec: Spec) -> Placement:
    """The stage of PCI in Placement that a spec wants: ``off`` without the section ``nova``."""
    return spec.nova.placement if spec.nova is not None else "off"


def beyond(stage: Placement) -> dict[Placement, Option]:
    """The switches that later stages add, by their stage."""
    stages = get_args(Placement)
    return {later: SWITCHES[later] for later in stages[stages.index(stage) + 1 :]}
