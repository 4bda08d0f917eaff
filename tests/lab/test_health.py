"""Faults of PCI Express that QEMU injects in a prepared host: `gpustack health` names the GPU, and no other.

QEMU's display controllers have no AER, so errors count at the root port above. QEMU 7.2 does not forward corrected
errors. It can't take a card off the bus without asking the host: instead, the port forwards nothing to it for a while.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from . import recipe
from .commands import SSH_OPTIONS, gpustack
from .conftest import Lab
from .machine import Machine
from .playbooks import spec
from .test_prepare import assert_prepared, gpu_functions
from .topology import GPU_COUNT, GPU_ID, Shape, function_of, port_of

SECONDS = 300.0
BASELINE = "baseline.json"


@dataclass(frozen=True, kw_only=True)
class Card:
    """A GPU and the port above it, by their addresses in the host."""

    index: int
    address: str
    port: str


def cards(host: Machine) -> list[Card]:
    """The GPUs in the order of QEMU's ports."""
    displays = [function.address for function in gpu_functions(host) if function.id == GPU_ID]
    ports = [host.ssh(["readlink", "-f", f"/sys/bus/pci/devices/{address}"]).split("/")[-2] for address in displays]
    return [Card(index=index, address=displays[index], port=ports[index]) for index in range(GPU_COUNT)]


def report_errors(host: Machine) -> None:
    """Let the ports forward uncorrected errors to the kernel, as the firmware of servers does; QEMU's does not."""
    for card in cards(host):
        host.ssh(["setpci", "-s", card.port, "COMMAND=100:100", "BRIDGE_CONTROL=2:2"])


def counter(host: Machine, address: str, kind: str) -> int:
    """The errors of a kind that the kernel has counted since boot."""
    text = host.ssh(["cat", f"/sys/bus/pci/devices/{address}/aer_dev_{kind}"])
    match = re.search(r"^TOTAL_ERR_\w+ (\d+)$", text, flags=re.MULTILINE)
    assert match, text
    return int(match[1])


def wait(host: Machine, what: str, reached: Callable[[], bool]) -> None:
    """Wait for something that the host does."""
    end = time.monotonic() + SECONDS
    while not reached():
        if time.monotonic() > end:
            raise host.error(f"{what}: not within {SECONDS:.0f} s")
        time.sleep(1)


def inject(host: Machine, card: Card, kind: str, error: str) -> None:
    """Let the port of a card report an error, and wait until the kernel has counted it."""
    before = counter(host, card.port, kind)
    host.inject_error(port_of(card.index), error)
    wait(host, f"{kind} error of {card.port}", lambda: counter(host, card.port, kind) > before)


def save_baseline(host: Machine) -> None:
    run = gpustack(host, "scan", recipe.HOST_NAME, *SSH_OPTIONS, "--save", BASELINE, spec_text=spec())
    assert run.code == 0, run.output


def health(host: Machine) -> dict[str, list[str]]:
    """The codes of warnings and errors by address, of GPUs that are there and of missing ones; [] is sound."""
    arguments = ["health", recipe.HOST_NAME, *SSH_OPTIONS, "--baseline", BASELINE, "-f", "csv"]
    run = gpustack(host, *arguments, "-c", "Address", "-c", "Health", spec_text=spec())
    assert run.code == 0, run.output
    result = {
        address: re.findall(r"GPU\d{3}", findings)
        for address, findings in re.findall(r'^"([0-9a-f:.]{12})","(.*)"$', run.output, flags=re.MULTILINE)
    }
    for code, address in re.findall(rf"(GPU\d+) {recipe.HOST_NAME} ([0-9a-f:.]{{12}}):", run.output):
        result.setdefault(address, [code])
    return result


def test_injected_faults_name_one_card(lab: Lab) -> None:
    state = lab.prepared_state(Shape())
    with lab.machine("health", Shape(), state=state) as host:
        host.resume()
        assert_prepared(host)
        report_errors(host)
        first, second = cards(host)
        sound: dict[str, list[str]] = {first.address: [], second.address: []}
        save_baseline(host)
        assert health(host) == sound

        lab.report("the first card answers no more, and again")
        bus = host.ssh(["setpci", "-s", first.port, "SECONDARY_BUS"]).strip()
        host.ssh(["setpci", "-s", first.port, "SECONDARY_BUS=ff"])
        assert health(host) == sound | {first.address: ["GPU027"]}
        host.ssh(["setpci", "-s", first.port, f"SECONDARY_BUS={bus}"])
        assert health(host) == sound

        lab.report("nonfatal errors, then fatal ones, of the second card")
        inject(host, second, "nonfatal", "POISON_TLP")
        assert health(host) == sound | {second.address: ["GPU767", "GPU922"]}
        save_baseline(host)
        inject(host, second, "fatal", "DLP")
        assert health(host) == sound | {second.address: ["GPU767", "GPU922"]}

        lab.report("the first card is unplugged")
        host.unplug(function_of(first.index, 0))
        wait(host, "removal", lambda: first.address not in host.ssh(["ls", "/sys/bus/pci/devices"]).split())
        assert health(host) == {first.address: ["GPU765"], second.address: ["GPU767", "GPU922"]}
