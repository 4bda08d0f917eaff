"""The model of the next boot for a host with five kernels and 30 menu entries, beside its plan."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import limits

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.store import parse_host
from gpustack.prepare.host.next_boot import difference
from gpustack.prepare.host.plan import plan_host
from gpustack.spec.load import parse_spec
from gpustack_demo.examples.host import write_host
from gpustack_demo.examples.hosts import talk_host

SPEC = 'version: 1\nmodels: {k4200: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {talk: [k4200]}\n'
KERNELS, ENTRIES, RUNS = 5, 30, 60


def large(host: Host, run: int) -> Host:
    """The host with more kernels and entries, and kernels of its own: equal hosts would be decided once."""
    kernels = [host.boot.kernels[0].model_copy(update={"release": f"6.1.{run}-{n}-amd64"}) for n in range(KERNELS)]
    template = next(entry for entry in host.boot.entries if entry.submenus)
    more = [
        template.model_copy(update={"position": f"1>{n}", "id": f"more-{n}", "kernel": kernels[n % KERNELS].image})
        for n in range(ENTRIES - 1)
    ]
    boot = host.boot.model_copy(update={"kernels": tuple(kernels), "entries": (host.boot.entries[0], *more)})
    return host.model_copy(update={"boot": boot})


def main() -> None:
    """Print the times, and compare the share with its limit."""
    spec = parse_spec(SPEC, "bench")
    with tempfile.TemporaryDirectory() as directory:
        host = parse_host(collect(str(write_host(Path(directory) / "talk", talk_host("talk")))), "bench")
    spent = 0.0
    originals = {name: getattr(difference, name) for name in ("after", "difference", "findings")}

    def timed(name: str) -> object:
        def call(*args: object, **options: object) -> object:
            nonlocal spent
            start = time.perf_counter()
            try:
                result = originals[name](*args, **options)
                return list(result) if name == "findings" else result
            finally:
                spent += time.perf_counter() - start

        return call

    for name in originals:
        setattr(difference, name, timed(name))
    plan_host(spec, host)  # templates and tables are loaded once
    hosts = [large(host, run) for run in range(RUNS)]
    spent, start = 0.0, time.perf_counter()
    for each in hosts:
        plan_host(spec, each)
    whole = time.perf_counter() - start
    share = spent / whole
    print(f"plan {whole / RUNS * 1000:.1f} ms, model {spent / RUNS * 1000:.2f} ms")
    limits.end(limits.check("next_boot.share", share))


if __name__ == "__main__":
    main()
