"""Nova's own parsers of one release, in a separate process."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpustack.configure.installed import program
from gpustack.configure.installed.verdicts import functions
from gpustack.hosts.facts.model import Host
from gpustack_demo.embedded.environment import Environment

_PROBE = Path(__file__).parents[1] / "nova" / "parsers" / "probe.py"
_PROGRAM = Path(program.__file__)


class Judge:
    """A process on the release's Python that reads configurations with Nova's code; a context manager."""

    def __init__(self, environment: Environment) -> None:
        self.release = environment.release.name
        self._environment = environment

    def __enter__(self) -> Judge:
        self._process = subprocess.Popen(
            [str(self._environment.program("python")), "-W", "ignore", str(_PROBE), str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=self._environment.variables(),
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=120)
        self._process.stdout.close()

    def asked(
        self,
        files: Iterable[Path],
        host: Host | None = None,
        *,
        services: Sequence[str] = ("api", "compute", "scheduler", "conductor"),
        ports: Sequence[Mapping[str, Any]] = (),
        cpus: int | None = 8,
    ) -> dict[str, Any]:
        """Nova's result for configuration files on a host.

        :param ports: ports of Neutron for which the host may have a device.
        """
        return self._answer(self._job(files, host, services, cpus) | {"ports": list(ports)})

    def fits_pages(self, case: Mapping[str, Any]) -> bool:
        """Whether an instance fits into the huge pages of a host."""
        fits: bool = self._answer({"pages": {**case, "host": [list(node.items()) for node in case["host"]]}})["fits"]
        return fits

    def _job(
        self, files: Iterable[Path], host: Host | None, services: Sequence[str], cpus: int | None
    ) -> dict[str, Any]:
        return {
            "files": {str(file): file.read_text(encoding="utf-8") for file in files},
            "services": list(services),
            "cpus": cpus,
            "functions": functions(host) if host else [],
            "interfaces": {net.name: f.address for f in host.pci for net in f.uses.net} if host else {},
        }

    def _answer(self, job: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        response: dict[str, Any] = json.loads(self._process.stdout.readline())
        return response
