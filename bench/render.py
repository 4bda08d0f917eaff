"""How long rendering Nova's configuration takes for 10 to 5,000 hosts, and how it grows.

Run it with ``python bench/render.py``. Each host has eight GPUs with their companions, two network ports and a
console; there are ten models. Measured are deciding, proving and rendering: facts in memory to file texts. Times are
processor time, the best of several rounds.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import limits

from gpustack.cli.app import COLLECT_AFTER
from gpustack.configure.desired import wanted
from gpustack.configure.render import render
from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.store import SharedParts
from gpustack.nova_options import releases
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Spec

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support import server_fleets

MODELS = 10
GPUS = 8
SIZES = (10, 100, 1000, 5000)


def host(number: int, parts: SharedParts | None = None) -> Host:
    """A host with eight GPUs of one model.

    :param parts: shared with other hosts, as a snapshot's reader makes them.
    """
    product = f"{0x2000 + number % MODELS:04x}"
    pci: list[dict[str, object]] = []
    for index in range(GPUS):
        slot = f"0000:{0x10 + index * 4:02x}:00"
        pci += [
            _function(f"{slot}.0", "10de", product, "030200", driver="vfio-pci", sriov_totalvfs=16),
            _function(f"{slot}.1", "10de", "0e0a", "040300", driver="vfio-pci"),
        ]
    pci += [_function(f"0000:01:00.{n}", "15b3", "1017", "020000", driver="mlx5_core") for n in (0, 1)]
    pci.append(_function("0000:02:00.0", "1a03", "2000", "030000", driver="ast"))
    placed = [{**entry, "iommu_group": group, "numa_node": 0} for group, entry in enumerate(pci)]
    raw = server_fleets.server(server_fleets.KINDS[1], number)  # of a prepared host
    return (parts or SharedParts()).host({**raw, "pci": placed})


def _function(address: str, vendor: str, product: str, pci_class: str, **more: object) -> dict[str, object]:
    return {"address": address, "vendor": vendor, "product": product, "class": pci_class, **more}


def spec(hosts: int) -> Spec:
    """A spec with ten models, and a pattern for the hosts of each."""
    names = {f"m{n}": f'{{match: {{vendor: "10de", product: "{0x2000 + n:04x}"}}}}' for n in range(MODELS)}
    models = "\n".join(f"  {name}: {match}" for name, match in names.items())
    text = f'version: 1\nmodels:\n{models}\nhosts: {{"gpu[0000:{hosts - 1:04d}]": [{", ".join(names)}]}}\n'
    return parse_spec(text + 'nova: {release: "2025.2", placement: schedule}\n', "bench")


def best(run: Callable[[list[Host]], object], size: int, rounds: int) -> float:
    """The best CPU time of several runs, in seconds, each with new facts (without cached properties)."""
    times = []
    for _ in range(rounds):
        parts = SharedParts()
        hosts = [host(number, parts) for number in range(size)]
        began = time.process_time()
        run(hosts)
        times.append(time.process_time() - began)
    return min(times)


def measure(size: int, rounds: int) -> dict[str, float]:
    """The seconds for one number of hosts."""
    document = spec(size)
    release = releases.release("2025.2")

    def run(hosts: list[Host]) -> int:
        needs = wanted(document, hosts, release=release)
        if not all(needs.computes.values()):
            raise SystemExit("not every host offers its GPUs")
        return len(render(needs, hosts=hosts).files)

    if run([host(number) for number in range(size)]) != size + 2:
        raise SystemExit("not every host got its file")
    seconds = best(run, size, rounds)
    return {"hosts": size, "seconds": round(seconds, 4), "milliseconds_per_host": round(1000 * seconds / size, 3)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print, as text or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    gc.set_threshold(COLLECT_AFTER)  # as in a command
    found = [measure(size, chosen.rounds) for size in SIZES]
    each, seconds = found[-1]["milliseconds_per_host"], [row["seconds"] for row in found]
    growth, of_many = seconds[-2] / seconds[-3], seconds[-1] / seconds[-2]
    if chosen.json:
        print(json.dumps({"render": found, "growth_100_to_1000": round(growth, 2)}))
    else:
        for row in found:
            print(f"{row['hosts']:>5} hosts: {row['seconds']:.3f} s, {row['milliseconds_per_host']:.2f} ms each")
        print(f"ten times the hosts take {growth:.1f} times as long")
    limits.end(
        limits.check("render.growth", growth),
        limits.check("render.growth_of_many", of_many),
        limits.check("render.each", each / 0.3),
    )


if __name__ == "__main__":
    main()
