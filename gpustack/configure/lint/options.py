"""Checks of every option: its name, section and value, as the release reads them."""

import difflib
import functools
import re
from collections.abc import Iterator
from typing import Any

from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.base.text import clipped, listed
from gpustack.configure.desired import PCI_FILTER
from gpustack.configure.lint.subject import LintSubject, check
from gpustack.configure.sources import PLACEMENT, values
from gpustack.nova_options import releases, tables
from gpustack.nova_options.config import Setting
from gpustack.nova_options.masking import is_secret
from gpustack.nova_options.options import Option, OptionTable, Release, of_any_release

_TITLE = "Option names"
_VALUES = "Option values"
_MISLEADING = {"dev_spec": "device_spec", "whitelist": "device_spec", "aliases": "alias", "pci_alias": "alias"}
_NEAR = 0.82
_SHOWN = 5


@check(_TITLE)
def names(subject: LintSubject) -> Iterator[Finding]:
    """Options that no release has, options of other releases, deprecated names, and sections that nothing reads."""
    for source in subject.sources:
        table, unknown = subject.table(source), dict[str, list[Setting]]()
        drivers = [s.value.lower() for s in source.configuration.settings if s.path == "DEFAULT/config_source"]
        configured = {setting.path for setting in source.configuration.settings}
        for setting in source.configuration.settings:
            if (option := table.find(setting.group, setting.name)) is not None:
                if setting.path == option.path or setting.name.replace("-", "_") == option.name:
                    continue
                both = "lines under both names add up" if option.kind == "multi" else "in one file, the new name wins"
                new = {"new_group": option.group, "new_name": option.name, "both": both}
                yield finding(Code.OPTION_DEPRECATED, **(_assigned(setting) | new))
            elif source.configuration.overrides and setting.file.endswith("/global.conf"):
                continue  # kolla-ansible merges it into the configurations of all services of OpenStack
            elif setting.group in (name for line in drivers for name in values(line)):
                continue  # a driver of oslo.config reads it
            elif (other := next(reversed(of_any_release(source.project).get(setting.path, ())), None)) is not None:
                yield _not_read(setting, other, subject.release)
            elif setting.group not in table.groups and _intended_section(setting, table) is None:
                unknown.setdefault(setting.group, []).append(setting)
            else:
                yield _unknown(setting, table, configured, subject.release)
        for group, settings in unknown.items():
            yield _unknown_section(group, settings, table)


def _assigned(setting: Setting) -> dict[str, Any]:
    """The values of a finding that name an assignment."""
    return {"place": setting.place, "group": setting.group, "name": setting.name}


def _not_read(setting: Setting, option: Option, release: Release) -> Finding:
    newer = option.since > release.major
    current = releases.device_spec_option(release)
    use = "take the line out"
    if option.path == "pci/device_spec":
        use = f"write [{current.group}] {current.name} instead"
    elif setting.path in option.old_names and releases.option(option.path).known_to(release):
        use = f"write [{option.group}] {option.name} instead"
    grave = Severity.ERROR if option.services and not option.removal else None
    since = f"; it came with {releases.first_with(option.since)}" if newer else " any more"
    reasons = {"release": release, "since": since, "use": use}
    return finding(Code.OPTION_NOT_IN_RELEASE, severity=grave, **(_assigned(setting) | reasons))


def _unknown(setting: Setting, table: OptionTable, configured: set[str], release: Release) -> Finding:
    """A name that no release has: an error if the line was probably meant to set an option that nothing else sets."""
    meant = _meant(setting, table, release)
    hint = f"; did you mean [{meant.group}] {meant.name}?" if meant else ""
    if meant and meant.name == setting.name:
        hint = f"; it belongs in [{meant.group}]"
        if meant.path not in table.named:
            hint += " of placement.conf" if PLACEMENT in meant.services else " of nova.conf"
            configured = set()
    if meant and (section := _intended_section(setting, table)) is not None:
        hint = f"; to oslo.config [{setting.group}] is another section: write [{section}]"
    grave = Severity.ERROR if meant and not {meant.path, *meant.old_names} & configured else None
    return finding(Code.OPTION_UNKNOWN, severity=grave, **_assigned(setting), hint=hint)


def _meant(setting: Setting, table: OptionTable, release: Release) -> Option | None:
    """The option that was probably meant; None if there is none with a similar name."""
    group, _, name = setting.name.rpartition(".")
    if group and (dotted := table.find(group, name)):
        return dotted
    if (section := _intended_section(setting, table)) is not None:
        return table.find(section, setting.name)
    if setting.group == "pci" and setting.name in _MISLEADING:
        wanted = _MISLEADING[setting.name]
        return releases.device_spec_option(release) if wanted == "device_spec" else table.named[f"pci/{wanted}"]
    of_group = {option.name: option for option in table.groups.get(setting.group, ())}
    of_group |= {old.partition("/")[2]: o for o in of_group.values() for old in o.old_names if "*" not in old}
    if near := difflib.get_close_matches(setting.name.lower(), of_group, n=1, cutoff=_NEAR):
        return of_group[near[0]]
    concerned = {option.name: option for option in releases.options(release)}
    elsewhere = [setting.name] if setting.name in concerned and setting.name != "driver" else []
    if not elsewhere and setting.name.startswith("pci_"):
        elsewhere = difflib.get_close_matches(setting.name, concerned, n=1, cutoff=_NEAR)
    return concerned[elsewhere[0]] if elsewhere else None


def _intended_section(setting: Setting, table: OptionTable) -> str | None:
    """The intended section, if the name differs only by spaces, quotes or the case of ``DEFAULT``."""
    letters = re.sub(r"\W+", "", setting.group).lower()
    section = "DEFAULT" if letters == "default" else letters
    return section if section != setting.group and table.find(section, setting.name) else None


def _unknown_section(group: str, settings: list[Setting], table: OptionTable) -> Finding:
    dynamic, near = table.section(group), difflib.get_close_matches(group, table.groups, n=1, cutoff=_NEAR)
    hint = f"; did you mean [{near[0]}]?" if near else ""
    if dynamic is None and any(settings[0].name == option.name for option in table.dynamic):
        hint = f"; the sections of mediated device types are called [{table.dynamic[0].group.replace('*', 'TYPE')}]"
    names = listed(list(dict.fromkeys(setting.name for setting in settings)), _SHOWN)
    return finding(Code.SECTION_UNKNOWN, place=settings[0].place, group=group, names=names, hint=hint)


@check(_TITLE)
def dynamic_sections(subject: LintSubject) -> Iterator[Finding]:
    """Sections named after a value, such as ``[mdev_nvidia-35]``, whose value no option lists."""
    for source in subject.sources:
        table, reported = subject.table(source), set[str]()
        for setting in source.configuration.settings:
            option = table.find(setting.group, setting.name) if table.section(setting.group) else None
            if option is None or not option.of_option or setting.group in reported:
                continue
            of = table.named[option.of_option]
            listing = source.configuration.last(of)
            listed_values = values(listing.value) if listing else of.default or ()
            expected = {releases_group.lower() for releases_group in _sections(table, option, listed_values)}
            if not (listing and listing.unknown) and setting.group not in expected:
                reported.add(setting.group)
                about: dict[str, Any] = {"group": setting.group, "option": f"[{of.group}] {of.name}"}
                letters = functools.partial(re.sub, r"[\W_]", "")
                meant = (name for name in expected if letters(name) == letters(setting.group))
                about["hint"] = next((f"; did you mean [{name}]?" for name in meant), "")
                yield finding(Code.SECTION_OF_UNLISTED_VALUE, place=setting.place, **about)


def _sections(table: OptionTable, option: Option, listed_values: tuple[str, ...]) -> Iterator[str]:
    """The names of the sections that Nova registers for the listed values, with the deprecated ones."""
    for dynamic in table.dynamic:
        if dynamic.of_option == option.of_option:
            for path in (dynamic.path, *dynamic.old_names):
                yield from (path.partition("/")[0].replace("*", value) for value in listed_values)


@check(_TITLE)
def substitutions(subject: LintSubject) -> Iterator[Finding]:
    """Values that reference other options, which Nova must have."""
    for source, option, setting in subject.effective():
        if not setting.names:
            continue
        if setting.endless:
            yield _refused(setting, option, f"its reference ${setting.names[0]} leads back to it")
            continue
        table = subject.table(source)
        if missing := [name for name in setting.names if _referenced(name, setting.group, table) is None]:
            names = " and ".join(f"${name}" for name in missing)
            yield finding(Code.REFERENCE_UNKNOWN, **_assigned(setting), names=names)
        elif not is_secret(option.path):
            unset = " and ".join(f"${name}" for name in setting.unknown)
            yield finding(
                Code.VALUE_NAMES_OPTION,
                **_assigned(setting),
                severity=None if unset and option.services else Severity.INFO,
                names=" and ".join(f"${name}" for name in setting.names),
                said=f"these files do not set {unset}, so the line is not judged" if unset else "its value is judged",
            )


def _referenced(name: str, group: str, table: OptionTable) -> Option | None:
    """The option of a reference ``$name`` or ``$group.name``."""
    of, _, rest = name.partition(".")
    if name in table.groups or of == "DEFAULT":
        return None  # oslo.config refuses the name of a section, and has none called DEFAULT
    return table.find(of, rest) if rest else table.find(group, name) or table.find("DEFAULT", name)


@check(_TITLE)
def templates(subject: LintSubject) -> Iterator[Finding]:
    """Values that are Jinja expressions of a deployment tool."""
    for _, _, setting in subject.effective():
        if setting.is_template:
            value = f"[{setting.group}] {setting.name} is a Jinja expression"
            yield finding(Code.JINJA_TEMPLATE, place=setting.place, what=value)


@check(_VALUES)
def limits(subject: LintSubject) -> Iterator[Finding]:
    """Values that oslo.config refuses: the service stops when it reads the option."""
    for source, option, setting in subject.effective():
        value = _with_defaults(setting, subject.table(source))
        if value is None or (fault := option.type.fault(value)) is None:
            continue
        if option.kind == "bool" and not is_secret(option.path):
            shown = repr(setting.value) if setting.value != setting.value.strip() else setting.value
            yield finding(Code.BOOLEAN_INVALID, **_assigned(setting), value=shown)
        else:
            yield _refused(setting, option, fault)


def _refused(setting: Setting, option: Option, fault: str) -> Finding:
    value = "its value (not shown)" if is_secret(option.path) else repr(clipped(setting.value))
    error = "oslo.config refuses it" if is_secret(option.path) else " ".join(fault.split())
    limits = f": {option.type.limits}" if option.type.limits else f" of type {option.type.name}"
    return finding(Code.OPTION_VALUE_REFUSED, **_assigned(setting), value=value, error=error, limits=limits)


def _with_defaults(setting: Setting, table: OptionTable) -> str | None:
    """The value with references to options that no file sets replaced by their defaults; None if one is not known."""
    value = setting.value
    for name in setting.unknown:
        option = None if setting.is_template or setting.endless else _referenced(name, setting.group, table)
        if option is None or option.computed:
            return None
        default = "" if option.default is None else str(option.default)
        value = value.replace(f"${{{name}}}", default).replace(f"${name}", default)
    return value


@check("Order of files")
def order(subject: LintSubject) -> Iterator[Finding]:
    """Options whose value depends on --config-file: if it is given, oslo.config reads drop-ins first."""
    for source in subject.sources:
        named_last = source.configuration.named_last()
        if named_last.files == source.configuration.files:
            continue
        for option, setting in subject.effective_of(source):
            other = named_last.last(option)
            if option.kind != "multi" and other is not None and _means(setting, option) != _means(other, option):
                about: dict[str, Any] = {"group": option.group, "name": option.name, "other": other.place}
                yield finding(Code.FILE_ORDER_DECIDES, place=setting.place, **about)


def _means(setting: Setting, option: Option) -> bool | str:
    """The relevant part of a value: whether a switch is on, or whether the list has PciPassthroughFilter."""
    if option.path == "filter_scheduler/enabled_filters":
        return PCI_FILTER in values(setting.value)
    return setting.value.lower() in releases.TRUE if option.kind == "bool" else setting.value


@check(_TITLE)
def readers(subject: LintSubject) -> Iterator[Finding]:
    """Settings in the configuration of a service that does not read them, unless a service that does has them too."""
    also, options = tables.facts()["also"], releases.options(subject.release)
    pairs = [(source, option) for source in subject.sources for option in options]
    read = {(option.path, source.configuration.value(option)) for source, option in pairs if source.serves(option)}
    for source, option in pairs:
        setting = source.configuration.last(option) if source.named and not source.serves(option) else None
        if setting and also.get(option.path) not in source.services and (option.path, setting.value) not in read:
            programs = " and ".join(option.programs)
            about: dict[str, Any] = {"group": option.group, "name": option.name, "services": programs}
            yield finding(Code.OPTION_OF_OTHER_SERVICE, place=setting.place, **about)
