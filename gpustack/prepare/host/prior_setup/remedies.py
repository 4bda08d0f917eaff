"""Remedies for hand-made lines that gpustack can't adopt; they replace the remedy with ``--adopt``.

An argument of a boot entry may come from tuned, or from a variable in ``/etc/default/grub`` that EDPM (RHOSO) or
TripleO manages and rewrites. It must be removed from that source.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding
from gpustack.base.text import quoted
from gpustack.hosts.facts.model import Host
from gpustack.linux.grub import DEFAULTS, TUNED
from gpustack.prepare.host.prior_setup.traces import Part, Trace
from gpustack.prepare.host.record import KERNEL_CMDLINE
from gpustack.prepare.host.tools import has_systemd_boot

_CODES = frozenset(
    {
        Code.ARGUMENT_CONFLICTS,
        Code.IDS_CONFLICT,
        Code.NEEDED_MODULE_DISABLED,
        Code.SCRIPT_TOUCHES_DEVICES,
        Code.DRIVERCTL_CONFLICTS,
    }
)
"""The findings whose default remedy offers ``--adopt``."""
_VARIABLE = re.compile(r"\s*(?:export\s+)?(\w+)=")
_OWNERS = {"EDPM": "edpm_kernel_args of the node set", "TRIPLEO": "KernelArgs of the TripleO role"}


def with_remedies(
    host: Host, findings: Iterable[Finding], traces: Iterable[Trace], *, adopted: bool
) -> Iterator[Finding]:
    """Replace the remedies of findings about lines that can't be adopted.

    :param adopted: whether all adoptable lines have been adopted already.
    """
    by_place = by_key((host.at(trace.place), trace) for trace in traces if not trace.agrees)
    for finding in findings:
        conflicting = by_place.get(finding.place, [])
        if finding.code not in _CODES or (not adopted and any(trace.stays is None for trace in conflicting)):
            yield finding
        else:
            remedy = _way(host, finding.place.removeprefix(f"{host.hostname} "), conflicting, by_place)
            yield replace(finding, remedy=f"{remedy}, then plan again; gpustack can't take it over")


def _way(host: Host, place: str, conflicting: list[Trace], by_place: dict[str, list[Trace]]) -> str:
    path = conflicting[0].path if conflicting else re.sub(r":\d+$", "", place)
    texts = sorted({trace.said for trace in conflicting if trace.part is Part.ARGUMENT})
    text = " ".join(texts) or "this line"
    if path == TUNED:
        commands = "`tuned-adm active`, `tuned-adm profile NAME`"
        return f"choose or write a tuned profile that does not set {text} ({commands})"
    if texts and host.boot.bls:
        return _from_entries(host, text, by_place)
    if "/systemd/system/" in path:
        return f"`systemctl disable {quoted(PurePosixPath(path).name)}`, or take the device out of the unit"
    if not path.startswith("/etc/"):
        return _hidden(path)
    return f"take {text} out of {conflicting[0].place if conflicting else place}, or correct it there, by hand"


def _from_entries(host: Host, text: str, by_place: dict[str, list[Trace]]) -> str:
    if has_systemd_boot(host):
        return f"take {text} out of {KERNEL_CMDLINE}, `kernel-install add RELEASE IMAGE` for each kernel"
    sources = [t for traces in by_place.values() for t in traces if t.path == DEFAULTS and t.said in text.split(" ")]
    for trace in sources:
        line = host.files[DEFAULTS].text.split("\n")[trace.line - 1]
        variable = _VARIABLE.match(line)
        if variable is not None and not variable[1].startswith("GRUB_CMDLINE_LINUX"):
            owner = next((of for name, of in _OWNERS.items() if name in variable[1]), "the tool that sets it")
            return f"change {owner}: {text} comes from {variable[1]} ({trace.place})"
    sources_of_new = (path for path in (KERNEL_CMDLINE, DEFAULTS) if path in host.files)
    files = " and ".join(path for path in sources_of_new if any(t in host.files[path].text for t in text.split(" ")))
    command = f"`grubby --update-kernel=ALL --remove-args={quoted(text)} --no-etc-grub-update`"
    return f"{command}; take it out of {files} as well" if files else command


def _hidden(path: str) -> str:
    """How to mask a file of a package: by a file of the same name in ``/etc``."""
    name = re.sub(r"^/(?:usr/local/lib|usr/lib|lib|run)/", "/etc/", path)
    if name == path or path.startswith("/run/"):
        return f"find what writes {path}, and change that"
    command = f"`ln -s /dev/null {quoted(name)}`"
    return f"{command} hides this file of a package (copy its other lines to a file of another name)"
