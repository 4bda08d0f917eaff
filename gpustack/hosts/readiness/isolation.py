"""The isolation of GPUs by Access Control Services (ACS) of the ports above them.

The kernel makes IOMMU groups at boot, from the services that are enabled then (``pci_acs_path_enabled``,
``drivers/pci/pci.c``). Registers that are written afterwards (``setpci``) change the isolation, but not the groups.
"""

import re
from collections.abc import Iterator

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.text import listed, printable
from gpustack.hosts.facts.gpus import Gpu, gpus
from gpustack.hosts.facts.model import Function, Host

_SERVICES = {0x01: "source validation", 0x04: "request redirect", 0x08: "completion redirect", 0x10: "upstream forward"}
_WRITES = re.compile(r"\bsetpci\b.*(?:ecap_acs|ecap0*d\b|[0-9a-f]\.[bwl]=)", re.IGNORECASE)
_ARGUMENT = re.compile(r"\bpci=(?:[^\s\"']*[,;])?(?:disable_acs_redir|config_acs)=[^\s\"']*")
_SHOWN = 4


def ports(host: Host, gpu: Gpu) -> Iterator[Function]:
    """The ports above a GPU, the nearest first."""
    seen = {gpu.main.address}
    parent = gpu.main.parent
    while parent is not None and parent not in seen and (port := host.functions.get(parent)) is not None:
        seen.add(parent)
        yield port
        parent = port.parent


def of_gpu(host: Host, gpu: Gpu) -> Iterator[Finding]:
    """Ports that can isolate a GPU and don't, although the kernel made a group of its own for it."""
    causes = "; ".join(f"{place}: {line}" for place, line in switches(host))
    for port in ports(host, gpu):
        off = port.acs.switched_off if port.acs is not None else 0
        is_separate = None not in (port.iommu_group, gpu.main.iommu_group) and port.iommu_group != gpu.main.iommu_group
        if off and is_separate:
            yield finding(
                Code.ACS_SWITCHED_OFF,
                place=f"{host.hostname} {gpu.main.address}",
                port=port.address,
                services=", ".join(name for bit, name in _SERVICES.items() if off & bit),
                group=gpu.main.iommu_group,
                cause=f" ({causes})" if causes else "",
            )


def of_host(host: Host) -> Iterator[Finding]:
    """Unreadable ports above GPUs, and configuration that switches ACS off."""
    cards = gpus(host)
    above = {port.address: port for gpu in cards for port in ports(host, gpu)}
    unknown = {
        address: port.acs.unknown for address, port in above.items() if port.acs is not None and port.acs.unknown
    }
    if unknown:
        names, reason = listed(sorted(unknown), _SHOWN), next(iter(unknown.values()))
        yield finding(Code.ACS_UNKNOWN, place=host.hostname, ports=names, reason=printable(reason or ""))
    for place, line in switches(host) if cards else ():
        yield finding(Code.ACS_SWITCHED_OFF_BY, place=f"{host.hostname} {place}", line=line)


def switches(host: Host) -> Iterator[tuple[str, str]]:
    """The lines of configuration that switch ACS off: file and line, and the text."""
    found: set[str] = set()
    for path, file in sorted(host.files.items()):
        for number, line in enumerate(file.text.split("\n"), 1):
            code = line.strip()
            match = _ARGUMENT.search(code) if not code.startswith("#") else None
            if match is not None:
                found.add(match.group())
            if match is not None or (not code.startswith("#") and _WRITES.search(code)):
                yield f"{path}:{number}", printable(code[:200])
    running = _ARGUMENT.search(host.kernel.command_line or "")
    if running is not None and running.group() not in found:
        yield "/proc/cmdline", printable(running.group())
