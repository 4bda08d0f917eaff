"""Compare ``nova lint`` with oslo.config's parsing of the same files, and ``--with-nova`` with an import of Nova.

The two of each pair alternate. The files are those of 1,000 rendered hosts; the first pair's time is processor time.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import limits
import render as fleet
from oslo_config import cfg

from gpustack.base.findings import errors
from gpustack.configure.desired import wanted
from gpustack.configure.installed import program
from gpustack.configure.lint import lint
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.render import render
from gpustack.nova_options import releases
from gpustack_demo.embedded.environment import ensure

HOSTS, ROUNDS, NOVA = 1000, 5, "2025.2"


def files(directory: Path) -> list[Path]:
    """The rendered files of the hosts and the controller."""
    hosts = [fleet.host(number) for number in range(HOSTS)]
    rendering = render(wanted(fleet.spec(HOSTS), hosts, release=releases.release(NOVA)), hosts=hosts)
    paths = []
    for file in rendering.files:
        paths.append(directory / f"{file.target}.conf")
        paths[-1].write_text(file.text, encoding="utf-8")
    return paths


def parsed(paths: list[Path]) -> None:
    """Let oslo.config parse each file, as a service does."""
    for path in paths:
        cfg.ConfigOpts()([], project="nova", default_config_files=[str(path)], default_config_dirs=[])


def linted(paths: list[Path]) -> None:
    """Check each file as that of one service."""
    services = ("api" if path.name.startswith("control") else "compute" for path in paths)
    subject = LintSubject(release=releases.release(NOVA))
    found = lint([f"{of}={path}" for of, path in zip(services, paths, strict=True)], subject).findings
    if errors(found):
        raise SystemExit(f"the rendered files have errors: {errors(found)[0]}")


def compared(ours: Callable[[], object], peer: Callable[[], object], clock: Callable[[], float]) -> float:
    """The ratio of the medians of alternating runs."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for run, kept in zip((ours, peer), times, strict=True):
            began = clock()
            run()
            kept.append(clock() - began)
    return statistics.median(times[0]) / statistics.median(times[1])


def main() -> None:
    """Measure, print, and compare with the limits."""
    nova = str(ensure(NOVA).program("python"))
    command = [str(Path(sys.executable).with_name("gpustack")), "nova", "lint", "--release", NOVA]
    place = str(Path(program.__file__).parent)
    package = f"import sys, types\npackage = sys.modules['p'] = types.ModuleType('p')\npackage.__path__ = [{place!r}]\n"
    of_compute = "import nova.virt.libvirt.driver, nova.compute.manager, unittest.mock"
    imports = [nova, "-W", "ignore", "-c", f"{package}from p import program\nprogram.prepare()\n{of_compute}"]

    def run(arguments: list[str]) -> None:
        subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    with tempfile.TemporaryDirectory() as directory:
        paths = files(Path(directory))
        parsing = compared(lambda: linted(paths), lambda: parsed(paths), time.process_time)
        one = next(path for path in paths if path.name.startswith("gpu"))
        checked = [*command, f"compute={one}", "--with-nova", nova]
        importing = compared(lambda: run(checked), lambda: run(imports), time.perf_counter)
    limits.end(limits.check("lint.parsing", parsing), limits.check("lint.with_nova", importing))


if __name__ == "__main__":
    main()
