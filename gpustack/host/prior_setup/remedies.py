"""What removes a hand-made line that gpustack can't take over: the finding's remedy then names no ``--adopt``.

An argument of a boot entry may come from elsewhere: from tuned, or from a variable that EDPM (RHOSO) or TripleO keeps
in ``/etc/default/grub``, and writes again with its next change. Its source is where it has to be removed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from gpustack.codes import Code
from gpustack.facts.model import Host
from gpustack.findings import Finding
from gpustack.host.boot.record import KERNEL_CMDLINE
from gpustack.host.boot.tools import has_entries, has_systemd_boot
from gpustack.host.prior_setup.traces import Part, Trace
from gpustack.linux.grub import DEFAULTS, TUNED

_CODES = frozenset(
    {
        Code.ARGUMENT_CONFLICTS,
        Code.IDS_CONFLICT,
        Code.NEEDED_MODULE_DISABLED,
        Code.SCRIPT_TOUCHES_DEVICES,
        Code.DRIVERCTL_CONFLICTS,
    }
)
"""The findings whose remedy offers to take something over."""
_VARIABLE = re.compile(r"\s*(?:export\s+)?(\w+)=")
_OWNERS = {"EDPM": "edpm_kernel_args of the node set", "TRIPLEO": "KernelArgs of the TripleO role"}


def with_remedies(
    host: Host, findings: Iterable[Finding], traces: Iterable[Trace], *, adopted: bool
) -> Iterator[Finding]:
    """The findings, with another remedy where nothing can be taken over.

    :param adopted: whether everything that can be taken over has been.
    """
    against: dict[str, list[Trace]] = {}
    for trace in traces:
        if not trace.agrees:
            against.setdefault(f"{host.hostname} {trace.place}", []).append(trace)
    for found in findings:
        here = against.get(found.place, [])
        if found.code not in _CODES or (not adopted and any(trace.stays is None for trace in here)):
            yield found
        else:
            way = _way(host, found.place.removeprefix(f"{host.hostname} "), here, against)
            yield replace(found, remedy=f"{way}, then plan again; gpustack can't take it over")


def _way(host: Host, place: str, here: list[Trace], against: dict[str, list[Trace]]) -> str:
    path = here[0].path if here else re.sub(r":\d+$", "", place)
    texts = sorted({trace.said for trace in here if trace.part is Part.ARGUMENT})
    said = " ".join(texts) or "this line"
    if path == TUNED:
        return (
            f"choose or write a tuned profile that does not set {said} (`tuned-adm active`, `tuned-adm profile NAME`)"
        )
    if texts and has_entries(host):
        return _from_entries(host, said, against)
    if "/systemd/system/" in path:
        return f"`systemctl disable {PurePosixPath(path).name}`, or take the device out of the unit"
    if not path.startswith("/etc/"):
        return _hidden(path)
    return f"take {said} out of {here[0].place if here else place}, or correct it there, by hand"


def _from_entries(host: Host, said: str, against: dict[str, list[Trace]]) -> str:
    if has_systemd_boot(host):
        return f"take {said} out of {KERNEL_CMDLINE}, `kernel-install add RELEASE IMAGE` for each kernel"
    sources = [t for traces in against.values() for t in traces if t.path == DEFAULTS and t.said in said.split(" ")]
    for trace in sources:
        line = host.files[DEFAULTS].text.split("\n")[trace.line - 1]
        variable = _VARIABLE.match(line)
        if variable is not None and not variable[1].startswith("GRUB_CMDLINE_LINUX"):
            owner = next((of for name, of in _OWNERS.items() if name in variable[1]), "the tool that sets it")
            return f"change {owner}: {said} comes from {variable[1]} ({trace.place})"
    sources_of_new = (path for path in (KERNEL_CMDLINE, DEFAULTS) if path in host.files)
    files = " and ".join(path for path in sources_of_new if any(t in host.files[path].text for t in said.split(" ")))
    command = f"`grubby --update-kernel=ALL --remove-args={shlex.quote(said)} --no-etc-grub-update`"
    return f"{command}; take it out of {files} as well" if files else command


def _hidden(path: str) -> str:
    """How a file of a package is hidden: by one of its name in ``/etc``."""
    name = re.sub(r"^/(?:usr/local/lib|usr/lib|lib|run)/", "/etc/", path)
    if name == path or path.startswith("/run/"):
        return f"find what writes {path}, and change that"
    return f"`ln -s /dev/null {name}` hides this file of a package (copy its other lines to a file of another name)"
