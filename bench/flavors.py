"""100 flavors on a real Nova API, created and unchanged, compared with other tools.

The other tools are osism's flavor-manager, Ansible's ``openstack.cloud.compute_flavor`` (both from PyPI, in their own
environments) and a loop of ``openstack flavor create``. For the last two, a few flavors are measured and extrapolated
to 100. Every request goes through a proxy on loopback that counts it and, in the second half, delays it by 50 ms, like
a remote cloud. The tools alternate, and their best rounds are compared.

Then ``gpustack cloud plan`` is compared with the plans of flavors, quotas and tenancy together.
"""

from __future__ import annotations

import functools
import math
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import limits
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.changing_cloud import changing_cloud
from support.flavor_clouds import Proxied, proxied

FLAVORS, PROJECTS, HOSTS = 100, 20, 50
PLAN_ROUNDS = 3
SAMPLED = 3
PLAYED = 20
ROUNDS = {0.0: 2, 0.05: 1}
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gpustack"


@dataclass
class Run:
    """One run: seconds, requests, and the number of those that change something."""

    seconds: float
    requests: int
    writes: int

    def times(self, factor: float) -> Run:
        return Run(self.seconds * factor, round(self.requests * factor), round(self.writes * factor))


def installed(package: str, program: str, *more: str) -> str:
    """A program of a package in its own environment, created if needed."""
    directory = CACHE / f"bench-{package}"
    path = directory / "bin" / program
    if not path.exists():
        venv.create(directory, with_pip=True, clear=True)
        subprocess.run([directory / "bin" / "pip", "install", "-q", package, *more], check=True)
    return str(path)


def write_specs(directory: Path) -> tuple[Path, Path]:
    """Write the same flavors for gpustack and for flavor-manager."""
    numbers = range(1, FLAVORS + 1)
    gpustack_spec = {
        "version": 1,
        "models": {"k4200": {"match": {"vendor": "10de", "product": "11b4"}, "alias": "K4200"}},
        "hosts": {"gpu1": ["k4200"]},
        "nova": {"release": "2025.2"},
        "flavors": {
            f"g{n}": {
                "model": "k4200",
                "vcpus": n,
                "ram": 1024 * n,
                "disk": 10,
                "numa": {"policy": "preferred", "nodes": 1},
            }
            for n in numbers
        },
    }
    extra = {
        "pci_passthrough:alias": "K4200:1",
        "hw:pci_numa_affinity_policy": "preferred",
        "hw:numa_nodes": "1",
    }
    manager_spec = {
        "reference": [{"field": "public", "default": True}],
        "mandatory": [{"name": f"g{n}", "cpus": n, "ram": 1024 * n, "disk": 10, **extra} for n in numbers],
    }
    paths = directory / "gpustack.yaml", directory / "flavors.yaml"
    for path, content in zip(paths, (gpustack_spec, manager_spec), strict=True):
        path.write_text(yaml.safe_dump(content))
    return paths


def measured(cloud: Proxied, command: Sequence[str]) -> Run:
    """Run a command through the proxy."""
    cloud.traffic.calm()
    start = time.perf_counter()
    process = subprocess.run(command, env=cloud.variables(), capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr
    return Run(seconds, len(cloud.traffic.requests), len(cloud.traffic.writes))


def clear(cloud: Proxied) -> None:
    """Delete all flavors, bypassing the proxy."""
    with cloud.cloud.connection() as connection:
        for flavor in connection.compute.flavors(details=False, is_public=None):
            connection.compute.delete_flavor(flavor)


def loop(cloud: Proxied) -> Run:
    """``openstack flavor create`` in a loop; some of the hundred, extrapolated."""
    program = str(Path(sys.executable).with_name("openstack"))
    runs = []
    for number in range(1, SAMPLED + 1):
        extra = ["--property", "pci_passthrough:alias=K4200:1", "--property", "hw:numa_nodes=1"]
        sizes = ["--vcpus", str(number), "--ram", "1024", "--disk", "10"]
        runs.append(measured(cloud, [program, "flavor", "create", f"g{number}", *sizes, *extra]))
    total = Run(*(sum(getattr(run, field) for run in runs) for field in ("seconds", "requests", "writes")))
    return total.times(FLAVORS / SAMPLED)


def play(cloud: Proxied, directory: Path) -> tuple[Run, Run]:
    """``openstack.cloud.compute_flavor`` in a loop; some of the hundred, extrapolated: created, and unchanged."""
    program = installed("ansible", "ansible-playbook", "openstacksdk<4.6")  # the collection fails with later versions
    wanted = {"vcpus": "{{ item }}", "ram": 1024, "disk": 10, "name": "g{{ item }}"}
    wanted |= {"extra_specs": {"pci_passthrough:alias": "K4200:1", "hw:numa_nodes": "1"}}
    task = {"openstack.cloud.compute_flavor": {"state": "present", **wanted}, "loop": list(range(1, PLAYED + 1))}
    variables = {"ansible_python_interpreter": str(Path(program).with_name("python"))}
    book = directory / "flavors.yml"
    book.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": [task]}]))
    first, second = (measured(cloud, [program, "-i", "localhost,", "-c", "local", str(book)]) for _ in range(2))
    return first.times(FLAVORS / PLAYED), second.times(FLAVORS / PLAYED)


def compare(cloud: Proxied, tools: dict[str, Sequence[str]], latency: float, directory: Path) -> list[limits.Result]:
    """Print the figures of all tools under a latency, and compare gpustack's with the limits."""
    cloud.traffic.latency = latency
    best: dict[tuple[str, str], Run] = {}

    def keep(job: str, name: str, measure: Callable[[], Run]) -> None:
        run = measure()
        before = best.get((job, name))
        best[job, name] = run if before is None or run.seconds < before.seconds else before

    for _ in range(ROUNDS[latency]):
        for name, command in tools.items():
            clear(cloud)
            keep("create", name, functools.partial(measured, cloud, command))
            keep("no-op", name, functools.partial(measured, cloud, command))
    clear(cloud)
    best["create", "openstack loop"] = loop(cloud)
    clear(cloud)
    best["create", "compute_flavor"], best["no-op", "compute_flavor"] = play(cloud, directory)
    print(f"{FLAVORS} flavors, {latency * 1000:.0f} ms latency")
    results = []
    for (job, name), run in sorted(best.items()):
        ratio = run.seconds / best[job, "flavor-manager"].seconds
        counts = f"{run.requests:5} requests, {run.writes:4} writes"
        print(f"  {job:<7} {name:<15} {run.seconds:7.2f} s  {counts}  ratio {ratio:.2f}", flush=True)
        if name == "gpustack":
            limit = {"create": "flavors.create", "no-op": "flavors.unchanged"}[job]
            results.append(limits.check(f"{limit}_far" if latency else limit, ratio))
    return results


def plans(directory: Path) -> limits.Result:
    """Compare `cloud plan` without changes with the plans of single groups."""
    projects = [f"project{n}" for n in range(PROJECTS)]
    hosts = [f"gpu{n}" for n in range(HOSTS)]
    sections = {
        "flavors": {
            f"g{n}": {"model": "k4200", "vcpus": 1, "ram": 1024, "disk": 10, "access": [projects[n % PROJECTS]]}
            for n in range(FLAVORS)
        },
        "hosts": {"gpu*": ["k4200"]},
        "quotas": {"default": {"k4200": 0}, "projects": {project: {"k4200": 4} for project in projects}},
        "tenancy": {"aggregates": {"gpu": {"projects": projects[:7]}}},
    }
    with changing_cloud("2025.2", directory, hosts=hosts, projects=projects, timeout=30) as cloud:
        cloud.applied(sections)
        spec, gpustack = cloud.spec(sections), str(Path(sys.executable).with_name("gpustack"))
        variables = {**os.environ, "OS_CLOUD": "embedded", "OS_CLIENT_CONFIG_FILE": str(cloud.clouds_yaml)}
        best: dict[str, float] = {}
        for _ in range(PLAN_ROUNDS):
            for group in ("cloud", "flavor", "quota", "tenancy"):
                start = time.perf_counter()
                subprocess.run([gpustack, group, "plan", spec], env=variables, capture_output=True, check=True)
                best[group] = min(best.get(group, math.inf), time.perf_counter() - start)
    ratio = best["cloud"] / sum(seconds for group, seconds in best.items() if group != "cloud")
    print(f"{FLAVORS} flavors, {PROJECTS} projects, {HOSTS} hosts, no changes")
    for group, seconds in best.items():
        print(f"  {group} plan: {seconds:.2f} s")
    return limits.check("flavors.cloud_plan", ratio)


def main() -> None:
    """Print the figures, and compare them with the limits."""
    with tempfile.TemporaryDirectory() as name, proxied("2025.2", Path(name)) as cloud:
        ours, theirs = write_specs(Path(name))
        gpustack = str(Path(sys.executable).with_name("gpustack"))
        manager = installed("openstack-flavor-manager", "openstack-flavor-manager")
        tools: dict[str, Sequence[str]] = {
            "flavor-manager": [manager, "--cloud", "embedded", "--name", "local", "--url", theirs.as_uri()],
            "gpustack": [gpustack, "flavor", "apply", str(ours), "--yes"],
        }
        measured(cloud, [gpustack, "flavor", "list"])  # warm-up: byte code and caches
        results = [result for latency in ROUNDS for result in compare(cloud, tools, latency, Path(name))]
    with tempfile.TemporaryDirectory() as name:
        results.append(plans(Path(name)))
    limits.end(*results)


if __name__ == "__main__":
    main()
