"""Variables of OpenStack-Ansible's os_nova role: for all of Nova, and for each compute host.

Ansible reads ``group_vars/NAME`` (a file or all files of a directory), else ``NAME.yml``, ``NAME.yaml`` or
``NAME.json``: the first that is there, and no other (``ansible/parsing/dataloader.py``, ``find_vars_files``). A new
directory would therefore switch off the variables of a file of the same name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpustack.codes import Code
from gpustack.findings import Finding, finding
from gpustack.nova_conf.deployed import carried
from gpustack.nova_conf.rendered import Job, RenderedFile, template
from gpustack.nova_options import releases
from gpustack.nova_options.markers import MARK
from gpustack.nova_options.pci_values import specs_of

DIRECTORY = "/etc/openstack_deploy"
FILE = "gpustack.yml"
_GROUP = "group_vars/nova_all"
_FILTERS, _OVERRIDES = "nova_scheduler_extra_filters", "nova_nova_conf_overrides"
_OTHER_NAMES = ("", ".yml", ".yaml", ".json")
_LISTS_SINCE = 27
"""The release (2023.1) from which os_nova's template takes a list of device_specs; before, one line of text."""


def files(job: Job, names: Sequence[str]) -> Iterator[RenderedFile]:
    """The group's variables, and those of each compute host."""
    for path, variables in _variables(job, names):
        services = job.services if path == _GROUP else ("compute",)
        yield _yaml(job, f"{job.directory}/{path}/{FILE}", services, variables)


def _variables(job: Job, names: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    wanted = job.wanted
    kept = carried(job.existing, wanted, "api")
    common: dict[str, Any] = {"nova_pci_alias": [*kept.aliases, *map(str, wanted.aliases)]}
    if "scheduler" in job.services:
        common[_FILTERS] = list(wanted.filters)
    overrides: dict[str, dict[str, bool]] = {}
    if wanted.placement != "off":
        overrides["pci"] = {"report_in_placement": True}
    if wanted.placement == "schedule":
        overrides["filter_scheduler"] = {"pci_in_placement": True}
    if overrides:
        common[_OVERRIDES] = overrides
    yield _GROUP, common
    modern = releases.device_spec_option(wanted.release).name == "device_spec"
    variable = "nova_device_spec" if modern else "nova_pci_passthrough_whitelist"
    for host in names:
        path = f"host_vars/{host}"
        lines = [*job.kept(host, f"{job.directory}/{path}/{FILE}").devices, *map(str, wanted.computes[host])]
        if lines:
            yield path, {variable: lines if wanted.release.major >= _LISTS_SINCE else _in_one_line(lines)}


def findings(job: Job, names: Sequence[str]) -> Iterator[Finding]:
    """Variables files that a directory of gpustack's would switch off, and variables that are set twice."""
    below = job.into(job.directory)
    if below is None:
        return
    for path, variables in _variables(job, names):
        for ending in _OTHER_NAMES:
            file = below / f"{path}{ending}"
            if file.is_file():
                yield _hidden(file, below / path)
        yield from _set_twice(below, path, variables)


def _hidden(file: Path, directory: Path) -> Finding:
    if file == directory:
        move = f"mv {file} {file}.tmp && mkdir {directory} && mv {file}.tmp {directory}/main.yml"
    else:
        move = f"mkdir -p {directory} && mv {file} {directory}/main{file.suffix}"
    return finding(Code.VARIABLES_FILE_HIDDEN, place=str(file), directory=directory, command=move)


def _set_twice(below: Path, path: str, variables: dict[str, Any]) -> Iterator[Finding]:
    """Other files that set a variable of gpustack's: Ansible takes one of the two values and loses the other."""
    for file in sorted((*below.glob("user_*.y*ml"), *below.glob("*_vars/*"), *below.glob("*_vars/*/*"))):
        winner = _winner(file.relative_to(below), path) if file.name != FILE and file.is_file() else None
        theirs = _top_level(file) if winner else {}
        both = sorted(theirs.keys() & variables.keys())
        if both:
            yield finding(
                Code.VARIABLE_SET_TWICE, place=str(file), names=" and ".join(both), ours=f"{path}/{FILE}", winner=winner
            )
        if _replaces_filters(theirs, variables.get(_FILTERS, ())):
            names = f"enabled_filters ({_FILTERS}, {_OVERRIDES})"
            yield finding(
                Code.VARIABLE_SET_TWICE,
                place=str(file),
                names=names,
                ours=f"{path}/{FILE}",
                winner="the value of this file",
            )


def _replaces_filters(theirs: Mapping[str, Any], needed: Collection[str]) -> bool:
    """Whether overrides set the scheduler's list, which the role has made of its filters, without those needed."""
    section = theirs.get(_OVERRIDES)
    section = section.get("filter_scheduler") if isinstance(section, dict) else None
    value = section.get("enabled_filters") if isinstance(section, dict) else None
    if value is None:
        return False
    listed = value if isinstance(value, list) else str(value).split(",")
    return not set(needed) <= {str(name).strip() for name in listed}


def _winner(other: Path, path: str) -> str | None:
    """Which of two files Ansible takes a variable from; None where no host reads both."""
    kind, name = other.parts[0], other.parts[1].partition(".")[0] if len(other.parts) > 1 else ""
    if kind not in ("group_vars", "host_vars"):
        return "the value of this file"  # extra variables of every run
    if f"{kind}/{name}" == path:
        return "the value of this file" if other.name > FILE else "gpustack's value, and this one is lost"
    if path == _GROUP:
        if kind == "host_vars":
            return "the value of this file on that host"
        return "gpustack's value" if name == "all" else "the value of the more specific group"
    return "gpustack's value, and this one is lost on that host" if kind == "group_vars" else None


def _top_level(file: Path) -> dict[str, Any]:
    """The variables that a file sets; none of one that is no YAML, or that is encrypted."""
    import yaml

    try:
        data = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)  # noqa: S506 - it makes text only
    except (OSError, yaml.YAMLError, ValueError, RecursionError):
        return {}
    return {str(name): value for name, value in data.items()} if isinstance(data, dict) else {}


def _in_one_line(lines: Sequence[str]) -> str:
    """Several device_specs as the one JSON list that an older role writes into one line."""
    return json.dumps([entry for line in lines for entry in specs_of(line)])


def _yaml(job: Job, path: str, services: tuple[str, ...], variables: dict[str, Any]) -> RenderedFile:
    import yaml

    dumped = yaml.safe_dump(variables, sort_keys=False, width=2**20, allow_unicode=True)
    text = template("variables.yml.j2").render(mark=MARK, release=job.wanted.release, variables=dumped)
    return RenderedFile(target="", path=path, text=text, services=services)
