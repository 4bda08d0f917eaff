"""How long collecting a host takes, against ``lspci -vmmnnk`` on the same machine, and with 4000 functions.

Run it with ``python bench/collect.py``; it needs ``lspci``. Times are processor time (user and system), the best of
several runs in turns, so that other load on the machine hurts neither side. The collector reads far more than
``lspci``: the ratio says what that costs.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import limits  # noqa: E402

from gpustack.hosts.facts.bundle import program  # noqa: E402
from support.sysroot import MEM, SysRoot  # noqa: E402

LSPCI = ["lspci", "-vmmnnk"]


def seconds(command: list[str]) -> float:
    """The CPU time of one run; its output is discarded."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def best(commands: dict[str, list[str]], rounds: int) -> dict[str, float]:
    """The best time of each command; the commands alternate."""
    times = dict.fromkeys(commands, float("inf"))
    for _ in range(rounds):
        for name, command in commands.items():
            times[name] = min(times[name], seconds(command))
    return times


def large_root(path: Path, functions: int) -> Path:
    """A root with many functions of a hundred kinds, in several domains, and a distribution kernel's aliases."""
    aliases = [
        (f"pci:v0000{v:04X}d0000{d:04X}sv*sd*bc*sc*i*", f"module_{v}_{d}") for v in range(100) for d in range(200)
    ]
    aliases += [(f"pci:v*d*sv*sd*bc{c:02X}sc*i*", f"class_{c}") for c in range(40)]
    root = SysRoot(path).host().iommu().kernel(aliases=aliases)
    for number in range(functions):
        domain, bus, device = number // 2048, number // 8 % 256, number % 8
        root.function(
            f"{domain:04x}:{bus:02x}:{device:02x}.0",
            vendor=f"{number % 100:04x}",
            product=f"{number % 200:04x}",
            cls="030200",
            driver="vfio-pci",
            group=number,
            bars=[(0x10_0000_0000 + (number << 24), 1 << 24, MEM)],
            serial=number.to_bytes(8, "little"),
        )
    root.iomem()
    return root.path


def main() -> None:
    """Print the figures, as a table or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--functions", type=int, default=4000)
    parser.add_argument("--python", default=shutil.which("python3", path="/usr/bin") or sys.executable)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        figures = measured(options, Path(directory))
    if options.json:
        print(json.dumps(figures, indent=1))
    else:
        for name, value in figures.items():
            print(f"{name.replace('_', ' '):32} {value:10.4g}")
    ratios = {"collect_to_lspci": "collect.time", "large_root_collect_to_lspci": "collect.large_root"}
    limits.end(*(limits.check(name, figures[figure]) for figure, name in ratios.items() if figure in figures))


def measured(options: argparse.Namespace, directory: Path) -> dict[str, float]:
    """The figures by name; the directory is for the program and for a root with many functions."""
    carried = directory / "collect.py"
    carried.write_text(program())
    collector = [options.python, str(carried)]
    figures: dict[str, float] = {}
    if shutil.which(LSPCI[0]):
        times = best({"collect": collector, "lspci": LSPCI, "python": [options.python, "-c", "pass"]}, options.rounds)
        figures |= {
            "collect_seconds": times["collect"],
            "lspci_seconds": times["lspci"],
            "python_start_seconds": times["python"],
            "collect_to_lspci": times["collect"] / times["lspci"],
        }
    else:
        print("lspci is not installed (package pciutils): no comparison", file=sys.stderr)
    root = large_root(directory / "root", options.functions)
    commands = {"collect": [*collector, "--root", str(root)]}
    if shutil.which(LSPCI[0]):
        commands["lspci"] = [*LSPCI, "-O", f"sysfs.path={root}/sys/bus/pci"]
    times = best(commands, 3)
    figures["large_root_functions"] = options.functions
    figures["large_root_collect_seconds"] = times["collect"]
    if "lspci" in times:
        figures["large_root_lspci_seconds"] = times["lspci"]
        figures["large_root_collect_to_lspci"] = times["collect"] / times["lspci"]
    return figures


if __name__ == "__main__":
    main()
