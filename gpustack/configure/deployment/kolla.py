"""Overrides for kolla-ansible, and for kayobe, which passes them to kolla-ansible.

kolla-ansible merges one ``nova.conf`` for each service from a list of files (``merge_configs``): its own template,
``global.conf``, ``nova.conf``, ``nova/SERVICE.conf``, ``nova/HOST/nova.conf``, and for the services of a cell
``nova/HOST/SERVICE.conf``. The last file that has an option replaces all of its lines. Placement's ``placement.conf``
is merged in the same way, with the overrides in ``placement.conf`` and ``placement``.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath

from gpustack.base.errors import NovaConfigError
from gpustack.base.files import read_text
from gpustack.base.findings import Code, Finding, finding
from gpustack.configure.rendered import Job, RenderedFile, Tool, template
from gpustack.configure.sections import ConfigSection, sections
from gpustack.configure.sources import OTHER_SERVICES, PLACEMENT, SERVICES, Source, carried, kinds
from gpustack.nova_options import releases
from gpustack.nova_options.config import NovaConfiguration, foreign, read_files
from gpustack.nova_options.markers import BEGIN, BLAZAR, END
from gpustack.spec.document import entries

DIRECTORY = "/etc/kolla/config/nova"
KAYOBE_DIRECTORY = "etc/kayobe/kolla/config/nova"
NAMES = {
    "api": ("nova-api",),
    "scheduler": ("nova-scheduler",),
    "conductor": ("nova-conductor", "nova-super-conductor"),
    "compute": ("nova-compute",),
}
FILTERS = ("BlazarFilter",)
"""The filters that kolla-ansible itself makes available and enables, with Blazar."""
_OF_ALL = ("../global.conf", "../nova.conf")
_OF_PLACEMENT = ("../global.conf", "../placement.conf", "../placement/placement-api.conf")
_OF_CELLS = ("nova-compute", "nova-conductor")
"""The services of the role nova-cell, the only ones that read ``HOST/SERVICE.conf``."""


def files(job: Job, names: Sequence[str], *, kayobe: bool = False) -> Iterator[RenderedFile]:
    """One file for each service, and one with the device_spec for each compute host.

    The settings that all hosts of nova-compute have in common are in ``nova-compute.conf``, which every host gets.
    """
    for service in SERVICES:
        if service not in job.services:
            continue
        for name in NAMES[service]:
            path = f"{job.directory}/{name}.conf"
            rendered = sections(
                job.wanted,
                (service,),
                filters=(*job.filters[:-1], job.filters[-1] + BLAZAR) if job.default_filters else job.filters,
                carried=carried(job.existing, job.wanted, service, into=job.into(path)),
                parts={"alias", "switches", "filters"},
            )
            if rendered:
                yield _file(job, path, (service,), rendered, kayobe=kayobe)
    if rendered := job.of_placement():
        yield _file(job, placement_file(job.directory), (PLACEMENT,), rendered, kayobe=kayobe)
    for host in names:
        path = f"{job.directory}/{host}/nova.conf"
        if rendered := job.of_host(host, path):
            yield _file(job, path, ("compute",), rendered, kayobe=kayobe)


def _file(
    job: Job, path: str, services: tuple[str, ...], rendered: Sequence[ConfigSection], *, kayobe: bool
) -> RenderedFile:
    text = template("block.conf.j2").render(
        begin=BEGIN, end=END, release=job.wanted.release, sections=rendered, raw=kayobe
    )
    return RenderedFile(target="", path=path, text=text, services=services, shared=True)


def placement_file(directory: str) -> str:
    """The override for Placement, beside the directory of those for Nova."""
    return str(PurePosixPath(directory).parent / "placement.conf")


def layers(directory: Path) -> tuple[Path, ...]:
    """The directories whose files kayobe merges with those of the same name in an environment's directory.

    These are the base configuration, and the environments that this one depends on.
    """
    environments = directory.parents[3] if len(directory.parents) > 3 else directory
    if environments.name != "environments":
        return ()
    below = Path(*directory.parts[-3:])
    names: dict[str, None] = {}
    waiting = [directory.parents[2].name]
    while waiting:
        for name in _dependencies(environments / waiting.pop()):
            if name not in names:
                names[name] = None
                waiting.append(name)
    return (environments.parent / below, *(environments / name / below for name in names))


def _dependencies(environment: Path) -> list[str]:
    import yaml

    from gpustack.base.limited_yaml import load

    try:
        data = load(read_text(environment / ".kayobe-environment"))
    except (OSError, ValueError, yaml.YAMLError):
        return []
    return [name for name in entries(data, "dependencies") if isinstance(name, str) and "\0" not in name]


def is_usual(directory: Path) -> bool:
    """Whether it has the overrides for Nova: the file for all services, nova.conf, is in the directory above."""
    return directory.resolve().parts[-3:] == ("kolla", "config", "nova")


def has_overrides(directory: Path) -> bool:
    """Whether a directory has overrides of services, and beside them or above those of single hosts or of all."""
    if is_usual(directory):
        return any(directory.rglob("*.conf"))
    if (directory / "nova.conf").exists() or not any(directory.glob("nova-*.conf")):
        return False
    of_all = directory.name == "nova" and any(_at(directory, name).is_file() for name in _OF_ALL)
    return of_all or any(directory.glob("*/nova.conf")) or any(directory.glob("*/nova-compute.conf"))


def inspected(
    directory: Path, joined: Sequence[Path] = (), *, own: bool = False
) -> tuple[tuple[Source, ...], tuple[Finding, ...]]:
    """Read the existing overrides, merged as kolla-ansible merges them, and report files that can't be read.

    :param joined: directories whose files kayobe merges with those of ``directory`` beforehand.
    :param own: whether to read gpustack's own lines too.
    """
    directories = (*joined, directory)
    configurations, findings = _read(directories)
    for path in [path for path in configurations if path.is_relative_to(directory.parent) and not own]:
        configurations[path] = replace(configurations[path], settings=tuple(foreign(configurations[path].settings)))
    hosts = sorted({file.parent.name for file in configurations if file.parent.parent in directories})

    def source(reader: str, names: Sequence[str], host: str | None = None, but: Sequence[str] = ()) -> Source:
        paths = [[_at(parent, name) for parent in directories] for name in names]
        merged = _merged([[configurations[path] for path in same if path in configurations] for same in paths])
        label, of_host = (directory / host, (host,)) if host else (directory, None)
        return Source(
            label=str(label),
            services=kinds([reader]),
            readers=(reader,),
            configuration=merged,
            named=True,
            hosts=of_host,
            but=tuple(but),
        )

    sources = []
    for service in SERVICES:
        for name in NAMES[service]:
            common = [*_OF_ALL, f"{name}.conf"]
            endings = ["nova.conf", f"{name}.conf"] if name in _OF_CELLS else ["nova.conf"]
            overrides = {
                host: [f"{host}/{ending}" for ending in endings]
                for host in hosts
                if any(d / host / ending in configurations for d in directories for ending in endings)
            }
            reader = name.removeprefix("nova-")
            sources.append(source(reader, common, but=tuple(overrides)))
            sources += [source(reader, [*common, *files], host) for host, files in overrides.items()]
    of_hosts = {path.parent.name for path in configurations if path.parent.parent.name == PLACEMENT}
    sources.append(source(PLACEMENT, _OF_PLACEMENT))
    sources += [
        source(PLACEMENT, [*_OF_PLACEMENT, f"../placement/{host}/placement.conf"], host) for host in sorted(of_hosts)
    ]
    ignored = tuple(_ignored(configurations, {file for s in sources for file in s.configuration.files}))
    return tuple(source for source in sources if not _is_empty(source)), findings + ignored


def _is_empty(source: Source) -> bool:
    """Whether no setting is for its service; HOST/nova.conf is merged for others that are probably not on the host."""
    others = {option.path for option in releases.all_options() if source.hosts and not source.serves(option)}
    return all(setting.path in others for setting in source.configuration.settings)


def _ignored(configurations: Mapping[Path, NovaConfiguration], read: Collection[str]) -> Iterator[Finding]:
    """Files with options for GPUs under names that kolla-ansible does not read."""
    for path, configuration in configurations.items():
        lines = [setting for setting in configuration.settings if setting.path in releases.names()]
        if lines and str(path) not in read and not path.name.startswith(OTHER_SERVICES):
            yield finding(Code.OVERRIDE_IGNORED, place=lines[0].place)


def _at(directory: Path, name: str) -> Path:
    """The path of an override, valid even if the directory does not exist yet."""
    return directory.parent / name[3:] if name.startswith("../") else directory / name


def _read(directories: Sequence[Path]) -> tuple[dict[Path, NovaConfiguration], tuple[Finding, ...]]:
    """Every file that kolla-ansible may read for Nova and Placement."""
    configurations, findings = {}, []
    for directory in directories:
        of_hosts = _at(directory, "../placement").glob("*/placement.conf")
        common = (_at(directory, name) for name in (*_OF_ALL, *_OF_PLACEMENT))
        for file in sorted({*common, *of_hosts, *directory.glob("*.conf"), *directory.glob("*/*.conf")}):
            if not file.is_file():
                continue
            try:
                configurations[file] = read_files([file])
            except NovaConfigError as error:
                text = read_text(file, errors="replace")
                if any(option.name in text for option in releases.all_options()):
                    findings += [finding(Code.OVERRIDE_NOT_INSPECTED, place=error.where or str(file), error=error.what)]
    return configurations, tuple(findings)


def _merged(layers: Sequence[Sequence[NovaConfiguration]]) -> NovaConfiguration:
    """Merge files: for each option, the lines of the last layer that has it. A layer is files that kayobe joins."""
    lines = [(number, setting) for number, parts in enumerate(layers) for part in parts for setting in part.settings]
    last = {setting.path: number for number, setting in lines}
    return NovaConfiguration(
        files=tuple(file for parts in layers for part in parts for file in part.files),
        settings=tuple(setting for number, setting in lines if last[setting.path] == number),
        overrides=True,
    )


def _findings(job: Job, names: Sequence[str]) -> Iterator[Finding]:
    if not job.existing.named:
        yield finding(Code.MERGED_CONFIGURATION_NOT_SHOWN, place=str(job.into(job.directory) or job.directory))


TOOL = Tool(
    directory=DIRECTORY,
    files=files,
    places=lambda below: (f"{below}/**/*.conf", placement_file(below)),
    findings=_findings,
    replaces=True,
    overrides=True,
    filters=FILTERS,
)
KAYOBE = replace(TOOL, directory=KAYOBE_DIRECTORY, files=partial(files, kayobe=True))
