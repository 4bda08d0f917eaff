"""Checks of option names and values: those that the release reads, and those that it ignores silently."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from gpustack.base.codes import Code
from gpustack.base.findings import Finding, finding
from gpustack.configure.deployed_filters import values
from gpustack.configure.desired import PCI_FILTER
from gpustack.configure.lint.registry import check
from gpustack.configure.lint.subject import LintSubject
from gpustack.nova_options import releases
from gpustack.nova_options.config import Setting
from gpustack.nova_options.releases import Option, Release

_TITLE = "Option names"
_MISLEADING = {"dev_spec": "device_spec", "whitelist": "device_spec", "aliases": "alias", "pci_alias": "alias"}
_NEAR = 0.82


@check(_TITLE)
def names(subject: LintSubject) -> Iterator[Finding]:
    """Options that no release has, options of other releases, and deprecated names."""
    for source in subject.sources:
        for setting in source.configuration.settings:
            yield from _name(setting, subject.release)


def _name(setting: Setting, release: Release) -> Iterator[Finding]:
    matching = [option for option in releases.options(release) if setting.path in (option.path, *option.old_names)]
    if matching:
        option = matching[0]
        if setting.path != option.path:
            yield finding(
                Code.OPTION_DEPRECATED,
                place=setting.place,
                group=setting.group,
                name=setting.name,
                new_group=option.group,
                new_name=option.name,
            )
        return
    other = _elsewhen(setting)
    if other is not None:
        yield _not_read(setting, other, release)
        return
    if hint := _meant(setting, release):
        yield finding(Code.OPTION_UNKNOWN, place=setting.place, group=setting.group, name=setting.name, hint=hint)


def _elsewhen(setting: Setting) -> Option | None:
    """The option of another release that has this name."""
    return next((o for o in releases.all_options() if setting.path in (o.path, *o.old_names)), None)


def _not_read(setting: Setting, option: Option, release: Release) -> Finding:
    newer = option.since > release.major
    current = releases.device_spec_option(release)
    use = "take the line out"
    if option.path == "pci/device_spec":
        use = f"write [{current.group}] {current.name} instead"
    elif setting.path in option.old_names:
        use = f"write [{option.group}] {option.name} instead"
    return finding(
        Code.OPTION_NOT_IN_RELEASE,
        place=setting.place,
        release=release,
        group=setting.group,
        name=setting.name,
        since=f"; it came with {releases.first_with(option.since)}" if newer else " any more",
        use=use,
    )


def _meant(setting: Setting, release: Release) -> str | None:
    """A hint at the intended option if no release has this one; None if the option does not concern gpustack."""
    if (section := _intended_section(setting, release)) is not None:
        return f"; to oslo.config [{setting.group}] is another section: write [{section}]"
    known = {option.name: option for option in releases.options(release)}
    if setting.name in known and setting.name != "alias":
        return f"; it belongs in [{known[setting.name].group}]"
    for option in releases.options(release):
        if any(path.partition("/")[2] == setting.name for path in option.old_names):
            return f"; write [{option.group}] {option.name}"
    if setting.group in ("DEFAULT", "filter_scheduler") and setting.name == "alias":
        return "; it belongs in [pci]"
    name = _MISLEADING.get(setting.name) if setting.group == "pci" else None
    if name == "device_spec":
        name = releases.device_spec_option(release).name
    near = difflib.get_close_matches(setting.name, known, n=1, cutoff=_NEAR)
    if setting.group not in ("pci", "filter_scheduler") and not setting.name.startswith("pci_"):
        return None
    name = name or (near[0] if near else None)
    if name:
        return f"; did you mean [{known[name].group}] {name}?"
    return "" if setting.group == "pci" and setting.name not in known else None


def _intended_section(setting: Setting, release: Release) -> str | None:
    """The intended section, if the name differs only by spaces, quotes or the case of ``DEFAULT``."""
    letters = re.sub(r"\W+", "", setting.group).lower()
    for option in releases.options(release):
        for group, _, name in (path.partition("/") for path in (option.path, *option.old_names)):
            if letters == group.lower() and group != setting.group and (name == setting.name or group == "pci"):
                return group
    return None


@check(_TITLE)
def substitutions(subject: LintSubject) -> Iterator[Finding]:
    """Values that reference other options: Nova decides whether those exist and what their defaults are."""
    for setting in subject.effective():
        if setting.names:
            unset = " and ".join(f"${name}" for name in setting.unknown)
            yield finding(
                Code.VALUE_NAMES_OPTION,
                place=setting.place,
                group=setting.group,
                name=setting.name,
                names=" and ".join(f"${name}" for name in setting.names),
                said=f"these files do not set {unset}, so the line is not judged"
                if unset
                else "it is judged with what these files set, and Nova must have options of these names",
            )


@check(_TITLE)
def templates(subject: LintSubject) -> Iterator[Finding]:
    """Values that are Jinja expressions of a deployment tool."""
    for setting in subject.effective():
        if setting.is_template:
            value = f"[{setting.group}] {setting.name} is a Jinja expression"
            yield finding(Code.JINJA_TEMPLATE, place=setting.place, what=value)


@check(_TITLE)
def booleans(subject: LintSubject) -> Iterator[Finding]:
    """Values of boolean options that oslo.config refuses."""
    for source in subject.sources:
        for option in releases.options(subject.release):
            if option.kind != "bool" or not source.serves(option):
                continue
            for setting in source.configuration.all(option):
                if not setting.unknown and setting.value.lower() not in (*releases.TRUE, *releases.FALSE):
                    yield finding(
                        Code.BOOLEAN_INVALID,
                        place=setting.place,
                        group=setting.group,
                        name=setting.name,
                        value=repr(setting.value) if setting.value != setting.value.strip() else setting.value,
                    )


@check("Order of files")
def order(subject: LintSubject) -> Iterator[Finding]:
    """Options whose value depends on --config-file: if it is given, oslo.config reads drop-ins first."""
    for source in subject.sources:
        for option in releases.options(subject.release):
            if option.kind == "multi" or not source.serves(option):
                continue
            usual, named_last = (c.effective(option) for c in (source.configuration, source.configuration.named_last()))
            if usual and _says(usual[-1], option) != _says(named_last[-1], option):
                yield finding(
                    Code.FILE_ORDER_DECIDES,
                    place=usual[-1].place,
                    group=option.group,
                    name=option.name,
                    other=named_last[-1].place,
                )


def _says(setting: Setting, option: Option) -> bool | str:
    """The relevant part of a value: whether a switch is on, or whether the list has PciPassthroughFilter."""
    if option.kind in ("text", "number"):
        return setting.value
    if option.kind == "list":
        return PCI_FILTER in values(setting.value)
    return setting.value.lower() in releases.TRUE


@check(_TITLE)
def readers(subject: LintSubject) -> Iterator[Finding]:
    """Settings in the configuration of a service that does not read them."""
    for source in subject.sources:
        for option in releases.options(subject.release) if source.named else ():
            settings = source.configuration.effective(option)
            # With pci_in_placement, nova-compute accepts aliases without ids.
            if settings and not source.serves(option) and option.path != "filter_scheduler/pci_in_placement":
                yield finding(
                    Code.OPTION_OF_OTHER_SERVICE,
                    place=settings[-1].place,
                    group=option.group,
                    name=option.name,
                    services=" and ".join(option.programs),
                )
