"""The input of the linter: configurations, the release that reads them, and hosts with known facts; and its checks."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Self

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.configure.desired import Ports, markers_of, ports
from gpustack.configure.packing import Advised, advised, gpus_of, requested
from gpustack.configure.providers import ProviderFiles
from gpustack.configure.sources import FILTERS, SERVICES, HostNames, Source, values
from gpustack.hosts.facts.model import Host
from gpustack.nova_options import releases
from gpustack.nova_options.config import Setting
from gpustack.nova_options.device_spec import DeviceSpec
from gpustack.nova_options.options import Option, OptionTable, Release
from gpustack.nova_options.pci_values import EntryError, alias_of, specs_of, traits
from gpustack.nova_options.scheduler import SCHEDULE, wanted_stage
from gpustack.spec.extra_specs import CPU_POLICY, PAGE_SIZE, TPM_VERSION
from gpustack.spec.model import Spec
from gpustack.spec.requests import Entry, entries, restricted
from gpustack.spec.tenancy import Tenancy
from gpustack.spec.vgpu_use import frameworks

ALIAS = releases.option("pci/alias")


@dataclass(frozen=True, kw_only=True)
class InstanceShape:
    """What the instances of a flavor need of nova-compute. A size is None if the facts of hosts decide (``auto``).

    :ivar cpu_policy: ``hw:cpu_policy``; shared by default.
    :ivar page_size: ``hw:mem_page_size``.
    :ivar nodes: the number of NUMA nodes.
    :ivar tpm: whether they have a virtual TPM.
    """

    flavor: str
    gpus: int
    vcpus: int | None = None
    ram_mib: int | None = None
    cpu_policy: str = "shared"
    page_size: str | None = None
    nodes: int | None = 1
    tpm: bool = False

    @classmethod
    def of(cls, entry: Entry) -> Self:
        """What the instances of a flavor of the spec need."""
        flavor = entry.flavor
        return cls(
            flavor=entry.name,
            gpus=entry.count,
            vcpus=entry.size("vcpus"),
            ram_mib=entry.size("ram"),
            cpu_policy=flavor.cpu_policy or flavor.extra_specs.get(CPU_POLICY, "shared"),
            page_size=flavor.mem_page_size or flavor.extra_specs.get(PAGE_SIZE),
            tpm=flavor.tpm or TPM_VERSION in flavor.extra_specs,
            nodes=None if flavor.numa.nodes == "auto" else flavor.numa.nodes or 1,
        )


def about_key(of: Literal["alias", "device_spec"], key: str, near: str | None, release: Release) -> dict[str, Any]:
    """The values of a finding about a key that a release does not know.

    :param near: the key that is probably meant.
    """
    hint = f"; did you mean {near}?" if near else ""
    if (later := releases.keys(of).get(key)) is not None:
        hint = f"; it came with {releases.first_with(later.since)}"
    known = f"known are {', '.join(releases.keys(of, release))}"
    return {"release": release, "key": key if key.isidentifier() else repr(key), "hint": hint, "known": known}


@dataclass(frozen=True, kw_only=True, eq=False)
class _Line:
    """A line of ``[pci]``, or an entry of one."""

    source: Source
    setting: Setting
    data: Mapping[str, Any]

    @property
    def place(self) -> str:
        return self.setting.place


@dataclass(frozen=True, kw_only=True, eq=False)
class AliasLine(_Line):
    """An alias that is a JSON object."""

    @property
    def name(self) -> str:
        """The name as Nova uses it."""
        return str(self.data.get("name", "")).strip()


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceLine(_Line):
    """One entry of a device_spec; ``spec`` is None when Nova refuses its values."""

    spec: DeviceSpec | None


def padded_traits(line: AliasLine | DeviceLine) -> Iterator[Finding]:
    """Traits with blanks beside a comma, which Nova keeps as a part of the name."""
    names = line.data.get("traits")
    for name in names.split(",") if isinstance(names, str) else ():
        if name != name.strip():
            (trait,) = traits({"traits": name})
            yield finding(Code.TRAIT_WITH_BLANK, place=line.place, name=name, trait=trait)


@dataclass(frozen=True, kw_only=True, eq=False)
class LintSubject:
    """The configurations to check, with the context that the checks need."""

    release: Release
    sources: Sequence[Source] = ()
    hosts: Sequence[Host] = ()
    """Hosts with facts, for checks of device_specs."""
    expected: Set[str] = frozenset()
    """The aliases of the spec."""
    advised: Sequence[Advised] = ()
    """The options that the counts of the spec's flavors require."""
    shapes: Sequence[InstanceShape] = ()
    """The instances of the spec's flavors."""
    limited: bool = False
    """Whether the spec has quotas."""
    marked: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The markers that each host with facts needs, by its name and marker class."""
    provided: Mapping[str, ProviderFiles | None] = field(default_factory=dict)
    """The files of provider_config, by the label of the configuration; None for those that are not known."""
    tenancy: Tenancy | None = None
    """Which instances the spec's GPU hosts accept."""
    ports: Mapping[str, Ports] = field(default_factory=dict)
    """The virtual functions that ports get on each host with facts, by its name."""
    spec: Spec | None = None
    """For the verdicts on the GPUs of hosts."""
    restricted: Collection[str] = ()
    """The names of the spec's flavors that only single projects may use."""
    _served: dict[tuple[str, ...], tuple[Source, ...]] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of_spec(cls, spec: Spec, release: Release, hosts: Sequence[Host]) -> Self:
        """What a spec needs, without configurations."""
        models = {model for host in spec.hosts.values() for model in host.models}
        mediated = frameworks(spec, hosts).mediated
        counts = requested(spec, gpus_of(spec, hosts))
        return cls(
            release=release,
            hosts=hosts,
            expected={alias for model in models - mediated for alias in spec.aliases_of(model)},
            advised=tuple(advised(counts, release, wanted_stage(spec))),
            shapes=tuple(map(InstanceShape.of, entries(spec))),
            limited=spec.quotas is not None,
            marked={host.hostname: markers_of(spec, host) for host in hosts},
            tenancy=spec.tenancy,
            ports={host.hostname: ports(spec, host) for host in hosts},
            spec=spec,
            restricted=restricted(spec),
        )

    @cached_property
    def markers(self) -> frozenset[str]:
        """The marker classes that some host needs."""
        return frozenset(name for units in self.marked.values() for name in units)

    @cached_property
    def normalised(self) -> tuple[str, ...]:
        """The device_spec tags that this release requires to be boolean words."""
        return tuple(name for name, key in releases.keys("device_spec", self.release).items() if key.strict)

    def serving(self, *services: str) -> tuple[Source, ...]:
        """The configurations that one of these services reads."""
        if services not in self._served:
            self._served[services] = tuple(s for s in self.sources if set(services) & set(s.services))
        return self._served[services]

    @cached_property
    def schedulers(self) -> Sequence[Source]:
        """The configurations of nova-scheduler, without files that are probably those of a compute host."""
        serving = self.serving("scheduler")
        return [s for s in serving if s.named or s.configuration.effective(FILTERS.of(self.release))]

    @cached_property
    def aliases(self) -> Sequence[AliasLine]:
        """The aliases that nova-api and nova-compute read, without those that have no name."""
        return [line for line in self.alias_lines if line.name]

    @cached_property
    def alias_lines(self) -> Sequence[AliasLine]:
        """The lines of aliases that nova-api and nova-compute read, without values that are not JSON objects."""
        lines = []
        for source in self.serving("api", "compute"):
            for setting in self.lines(source, ALIAS):
                with contextlib.suppress(EntryError):
                    lines.append(AliasLine(source=source, setting=setting, data=alias_of(setting.value)))
        return lines

    def lines(self, source: Source, option: Option) -> tuple[Setting, ...]:
        """The effective assignments, without values that reference an option that no file sets."""
        return tuple(s for s in source.configuration.effective(option.of(self.release)) if not s.unknown)

    def misshapen(self, option: Option, parse: Callable[[str], object], *services: str) -> Iterator[Finding]:
        """The values of an option that are not JSON, or not what the option takes."""
        for source in self.serving(*services):
            for setting in self.lines(source, option):
                try:
                    parse(setting.value)
                except EntryError as error:
                    yield error.finding(setting.place, setting.name)

    def table(self, source: Source) -> OptionTable:
        """The options that the release has for a configuration: Nova's or Placement's."""
        return releases.table(self.release, source.project)

    def last(self, source: Source, option: Option) -> Setting | None:
        """The effective assignment of an option, under the names that the release reads."""
        return source.configuration.last(option if "mdev_" in option.group else option.of(self.release))

    def effective(self) -> Iterator[tuple[Source, Option, Setting]]:
        """The effective assignments of all options: each service reads all of them when it logs them at its start."""
        for source in self.sources:
            for option, setting in self.effective_of(source):
                yield source, option, setting

    def effective_of(self, source: Source) -> Iterator[tuple[Option, Setting]]:
        """The effective assignments of one configuration."""
        table = self.table(source)
        configured = {setting.path for setting in source.configuration.settings}
        found = [table.find(setting.group, setting.name) for setting in source.configuration.settings]
        found += [table.deprecated.get(path) for path in configured]  # a name may be that of two options
        for option in {option.path: option for option in found if option is not None}.values():
            if self._is_registered(source, option, configured):
                yield from ((option, setting) for setting in source.configuration.effective(option))

    def _is_registered(self, source: Source, option: Option, configured: Set[str]) -> bool:
        """Whether the service registers an option that depends on another one."""
        if option.lazy:
            return bool({f"{option.group}/auth_type", f"{option.group}/auth_plugin"} & configured)
        if option.late and "compute" not in source.services:
            return False
        if not option.of_option:
            return True
        of = self.table(source).named[option.of_option]
        listing = self.last(source, of)
        listed = values(listing.value) if listing else of.default or ()
        return option.value_of_group in {value.lower() for value in listed}

    @cached_property
    def devices(self) -> Sequence[DeviceLine]:
        """The entries of device_spec that nova-compute reads."""
        return [line for line in self.entries if "compute" in line.source.services]

    @cached_property
    def entries(self) -> Sequence[DeviceLine]:
        """The entries of device_spec. Every service of Nova parses them (``nova/network/neutron.py``, ``API``)."""
        lines = []
        option = releases.device_spec_option(self.release)
        for source in self.serving(*SERVICES):
            for setting in self.lines(source, option):
                with contextlib.suppress(EntryError):
                    entries = specs_of(setting.value)
                    lines += [DeviceLine(source=source, setting=setting, data=e, spec=self._parsed(e)) for e in entries]
        return lines

    def _parsed(self, entry: Mapping[str, Any]) -> DeviceSpec | None:
        try:
            return DeviceSpec.parse(entry, booleans=self.normalised)
        except ValueError:
            return None

    def aliases_of(self, source: Source) -> Sequence[AliasLine]:
        return self._aliases_by_source.get(id(source), ())

    def devices_of(self, source: Source) -> Sequence[DeviceLine]:
        return self._devices_by_source.get(id(source), ())

    @cached_property
    def _aliases_by_source(self) -> Mapping[int, Sequence[AliasLine]]:
        return by_key((id(line.source), line) for line in self.aliases)

    @cached_property
    def _devices_by_source(self) -> Mapping[int, Sequence[DeviceLine]]:
        return by_key((id(line.source), line) for line in self.devices)

    def doubt(self, source: Source) -> dict[str, Any]:
        """Severity and text for a missing setting if it is not certain that the service reads the file."""
        if source.named:
            return {"severity": None, "doubt": ""}
        return {
            "severity": Severity.WARNING,
            "doubt": " (if such a service reads these files: name it with SERVICE=PATH)",
        }

    def hosts_of(self, source: Source) -> tuple[Host, ...]:
        """The hosts that may have a configuration."""
        return self._hosts_by_source[id(source)]

    @cached_property
    def _hosts_by_source(self) -> Mapping[int, tuple[Host, ...]]:
        names = HostNames(self.hosts)
        return {id(source): tuple(names.having(source)) for source in self.sources}

    def on(self, option: Option, source: Source) -> bool:
        """Whether a boolean option is on in a configuration, for this release."""
        return option.known_to(self.release) and source.configuration.enabled(option)

    @cached_property
    def scheduled_by_placement(self) -> Source | None:
        """A configuration of the API, scheduler or conductor that has pci_in_placement on."""
        return next((s for s in self.serving("api", "scheduler", "conductor") if self.on(SCHEDULE, s)), None)


Run = Callable[[LintSubject], Iterator[Finding]]

CHECKS: list[tuple[str, Run]] = []
"""The checks of all imported modules, with their titles."""


def check(title: str) -> Callable[[Run], Run]:
    """Register a check under a title; checks with the same title share a line of the report."""

    def added(run: Run) -> Run:
        CHECKS.append((title, run))
        return run

    return added
