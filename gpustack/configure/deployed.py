"""The existing configuration of a deployment, and the lines of it that a rendering carries over.

Lines that gpustack wrote are ignored, so that a second rendering gives the same result.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpustack.base.findings import Finding
from gpustack.configure.desired import DesiredConfig
from gpustack.configure.packing import Advised
from gpustack.configure.sections import Carried
from gpustack.configure.sources import HostNames, Source
from gpustack.hosts.facts.model import Host
from gpustack.nova_options import releases
from gpustack.nova_options.config import Setting, foreign
from gpustack.nova_options.device_spec import DeviceSpec, offered, parse_line
from gpustack.nova_options.options import Option
from gpustack.nova_options.pci_values import EntryError, alias_of

ALIAS = releases.option("pci/alias")


@dataclass(frozen=True, kw_only=True)
class Existing:
    """The existing configurations, without gpustack's own lines.

    :ivar named: configurations named on the command line.
    :ivar inspected: configurations found where the rendered files go.
    :ivar joined: directories whose files are merged with rendered files of the same name (kayobe's environments).
    :ivar documents: named YAML resources or values, for deployment tools that merge their files with these.
    :ivar findings: configurations that could not be read.
    :ivar mode: the permission bits of new files: those that all files of ``documents`` have.
    """

    named: tuple[Source, ...] = ()
    inspected: tuple[Source, ...] = ()
    joined: tuple[Path, ...] = ()
    documents: tuple[Mapping[str, Any], ...] = ()
    findings: tuple[Finding, ...] = ()
    mode: int = 0o644

    @property
    def sources(self) -> tuple[Source, ...]:
        """All configurations, the named ones first."""
        return (*self.named, *self.inspected)

    def effective(self, option: Option) -> Iterator[tuple[Source, Setting]]:
        """The effective assignments of an option in every configuration whose services read it."""
        reported = set()
        for source in self.sources:
            if source.serves(option):
                settings = source.configuration.effective(option)
                for setting in settings if source in self.inspected else foreign(settings):
                    if (setting.place, source.services, source.hosts) not in reported:
                        reported.add((setting.place, source.services, source.hosts))
                        yield source, setting

    def retained(self, advice: Advised) -> Setting | None:
        """The operator's setting of an option, if its value is not the advised one: gpustack keeps it.

        A setting with the advised value is rendered again: merged files contain the rendered lines without their
        markers.
        """
        for source in self.sources:
            settings = list(foreign(source.configuration.all(advice.option))) if source.serves(advice.option) else []
            if settings and not advice.means(settings[-1].value):
                return settings[-1]
        return None


def carried(
    existing: Existing,
    wanted: DesiredConfig,
    service: str,
    host: Host | None = None,
    hosts: Sequence[Host] = (),
    *,
    into: Path | None = None,
) -> Carried:
    """The existing lines of options that the deployment tool replaces as a whole, without those that gpustack renders.

    :param host: for device_spec: an entry that matches only the host's prepared GPUs is replaced by the rendered one.
    :param hosts: all hosts, to find the host of each configuration.
    :param into: the file that the rendered lines go into. Its existing lines stay in force and are not repeated.
    """
    names = {alias.name for alias in wanted.aliases}
    aliases, devices = [], []
    spec_option = releases.device_spec_option(wanted.release)
    targets = _joined_with(into, existing.joined)
    names_of_hosts = HostNames(hosts)
    for source in existing.sources:
        of_others = source.hosts is not None if host is None else host not in names_of_hosts.having(source)
        if service not in source.services or of_others:
            continue
        configuration = source.configuration
        aliases += [
            _one_line(setting.written)
            for setting in foreign(configuration.effective(ALIAS))
            if setting.path == ALIAS.path and _alias_name(setting) not in names and not _is(setting, targets)
        ]
        if host is not None:
            own_devices = rendered_devices(wanted, host)
            for setting in foreign(configuration.effective(spec_option)):
                if setting.path == spec_option.path and not _is(setting, targets) and not is_faulty(setting):
                    reach = frozenset() if setting.is_template else offered(parse_line(setting.value), host)
                    if not reach or not reach <= own_devices:
                        devices.append(_one_line(setting.written))
    return Carried(aliases=tuple(dict.fromkeys(aliases)), devices=tuple(dict.fromkeys(devices)))


def _joined_with(into: Path | None, joined: Sequence[Path]) -> frozenset[Path]:
    """The target file, and the files of the same name that the deployment tool merges with it."""
    if into is None:
        return frozenset()
    of_host = into.parent.name if into.name == "nova.conf" else ""
    return frozenset((into.resolve(), *((directory / of_host / into.name).resolve() for directory in joined)))


def _is(setting: Setting, files: Collection[Path]) -> bool:
    return Path(setting.file).resolve() in files


def is_faulty(setting: Setting) -> bool:
    """Whether Nova refuses a value. The value of a template is unknown, so it is never faulty."""
    if setting.is_template:
        return False
    try:
        alias_of(setting.value) if setting.path in (ALIAS.path, *ALIAS.old_names) else parse_line(setting.value)
    except EntryError:
        return True
    return False


def rendered_devices(wanted: DesiredConfig, host: Host) -> frozenset[str]:
    """The addresses that the rendered device_spec offers on a host."""
    return offered([DeviceSpec.parse(e.to_dict()) for e in wanted.computes.get(host.hostname, ())], host)


def _alias_name(setting: Setting) -> str | None:
    try:
        return str(alias_of(setting.value).get("name", "")).strip()
    except EntryError:
        return None


def _one_line(text: str) -> str:
    return " ".join(part.strip() for part in text.splitlines())
