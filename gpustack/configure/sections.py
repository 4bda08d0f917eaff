"""The groups and settings of a service's configuration, the same for every kind of deployment."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from gpustack.configure.desired import PCI_FILTER, DesiredConfig, DeviceEntry
from gpustack.nova_options import mediated, releases

CONTROL = ("api", "scheduler", "conductor")
_TYPES = "Nova creates the mediated devices (vGPU). Without device_addresses of each type, it would use other cards."
ALL_PARTS = frozenset({"alias", "devices", "switches", "filters"})


@dataclass(frozen=True, kw_only=True)
class Line:
    """One setting; ``comment`` is the reason for it."""

    name: str
    value: str
    comment: str = ""


@dataclass(frozen=True, kw_only=True)
class ConfigSection:
    """An option group with its settings."""

    group: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, kw_only=True)
class Carried:
    """Existing lines that a rendering must repeat where it replaces all lines of an option.

    :ivar aliases: alias lines, unchanged.
    :ivar devices: device_spec lines, unchanged.
    """

    aliases: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()


NOTHING = Carried()


def with_filters(filters: Sequence[str], needed: Sequence[str] = (PCI_FILTER,)) -> tuple[str, ...]:
    """Append the required filters that a list lacks; the order of the list stays."""
    return tuple(dict.fromkeys((*filters, *needed)))


def sections(
    wanted: DesiredConfig,
    services: Collection[str],
    *,
    filters: Sequence[str] = (),
    devices: Sequence[DeviceEntry] = (),
    types: Sequence[mediated.TypeSection] = (),
    carried: Carried = NOTHING,
    parts: Collection[str] = ALL_PARTS,
) -> tuple[ConfigSection, ...]:
    """The settings for services that read the same configuration.

    :param filters: the scheduler's complete list.
    :param devices: the device_spec entries of the host, for nova-compute.
    :param types: the types of the host's mediated devices, for nova-compute.
    :param parts: the members of :data:`ALL_PARTS` to include in this file; ``switches`` are all single values.
    """
    lines = {
        "pci": list(_pci(wanted, services, devices, carried, parts)),
        "filter_scheduler": list(_scheduling(wanted, services, filters, parts)),
    }
    if types and {"devices", "compute"} <= {*parts, *services}:
        for group, values in mediated.settings(types, wanted.release).items():
            comment = _TYPES if group == "devices" else ""
            lines[group] = [Line(name=name, value=value, comment=comment) for name, value in values.items()]
    for advice in wanted.advised if "switches" in parts else ():
        if set(advice.option.services) & set(services):
            line = Line(name=advice.option.name, value=advice.value, comment=advice.comment)
            lines.setdefault(advice.option.group, []).append(line)
    return tuple(ConfigSection(group=group, lines=tuple(of_group)) for group, of_group in lines.items() if of_group)


def _pci(
    wanted: DesiredConfig,
    services: Collection[str],
    devices: Sequence[DeviceEntry],
    carried: Carried,
    parts: Collection[str],
) -> Iterator[Line]:
    if "alias" in parts and {"api", "compute"} & set(services):
        values = (*carried.aliases, *wanted.alias_lines)
        yield from _lines("alias", values, "The same on nova-api and on every nova-compute: both read it for moves.")
    if "devices" in parts and "compute" in services:
        option = releases.device_spec_option(wanted.release)
        gpus = [str(entry) for entry in devices if entry.physical_network is None]
        ports = [str(entry) for entry in devices if entry.physical_network is not None]
        comment = "The GPUs that this host passes through, without their other functions."
        yield from _lines(option.name, (*carried.devices, *gpus), comment)
        yield from _lines(option.name, ports, "Virtual functions of network cards for ports of Neutron.")
    if "switches" in parts and "compute" in services and wanted.placement != "off":
        comment = "Permanent: nova-compute does not start again if this is off."
        yield Line(name="report_in_placement", value="true", comment=comment)


def _scheduling(
    wanted: DesiredConfig, services: Collection[str], filters: Sequence[str], parts: Collection[str]
) -> Iterator[Line]:
    if "filters" in parts and "scheduler" in services:
        comment = "The complete list: the last file read decides."
        yield Line(name="enabled_filters", value=",".join(filters), comment=comment)
    if wanted.placement != "schedule" or "switches" not in parts:
        return
    of_control = not set(CONTROL).isdisjoint(services)
    if of_control or ("compute" in services and wanted.without_ids):
        refused = "Without this option, nova-compute refuses aliases without ids."
        comment = "Only after every nova-compute reports its devices." if of_control else refused
        yield Line(name="pci_in_placement", value="true", comment=comment)


def _lines(name: str, values: Sequence[str], comment: str) -> Iterator[Line]:
    for index, value in enumerate(values):
        yield Line(name=name, value=value, comment="" if index else comment)
