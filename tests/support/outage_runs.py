"""A GPU of a real Nova out of service and back, with the files that an operator uses."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpustack.hosts.facts.store import save_snapshot
from support.clouds import nova_conf
from support.cloudworld import Ran, World
from support.fleet_answers import facts
from support.fleet_runs import execute, run

_SPEC = """\
version: 1
models: {{k4200: {{match: {{vendor: "10de", product: "11b4"}}}}}}
hosts: {{{host}: [k4200]}}
nova: {{release: "{release}", placement: {placement}}}
"""
FIRST, SECOND = "0000:81:00.0", "0000:82:00.0"


@dataclass
class Outage:
    """The operator's desk: the spec, the facts of a host with two GPUs, the commands."""

    world: World
    host: str
    release: str
    directory: Path
    lines: str = ""
    report: bool = False
    """Whether Nova only reports devices to Placement."""
    sources: tuple[str, ...] = ()
    """Options of each command."""

    def __post_init__(self) -> None:
        snapshot = facts(self.host, 0x81, 0x82).model_dump(by_alias=True)
        save_snapshot(self.directory / "hosts.json", [snapshot])
        self.write("")

    @property
    def spec(self) -> Path:
        return self.directory / "gpustack.yaml"

    def write(self, lines: str) -> None:
        """Write the spec with these lines at its end."""
        placement = "schedule" if self.world.placement else "report" if self.report else "off"
        text = _SPEC.format(host=self.host, release=self.release, placement=placement)
        self.spec.write_text(f"{text}{lines}\n", encoding="utf-8")

    def gpu(self, action: str, address: str, *more: str) -> Ran:
        """Run ``gpustack gpu disable`` or ``enable``."""
        reason = ("--reason", "fatal AER errors") if action == "disable" else ()
        files = ("--spec", str(self.spec), "--snapshot", str(self.directory / "hosts.json"))
        command = (action, self.host, address, *reason, *files, *self.sources, *more)
        return run(self.world.nova.clouds_yaml, *command)

    def plan(self, action: str, address: str, *more: str) -> dict[str, Any]:
        """What the command would do."""
        ran = self.gpu(action, address, "--dry-run", "-f", "json", *more)
        assert ran.code in (0, 13), ran
        plan: dict[str, Any] = json.loads(ran.out)
        return plan

    def restart(self) -> list[str]:
        """Render device_spec for the host, and restart its nova-compute with it; return the rendered lines."""
        command = ("nova", "render", str(self.spec), self.host, "--snapshot", str(self.directory / "hosts.json"))
        ran = execute(self.world.nova.clouds_yaml, *command, "--service", "compute", "-f", "json")
        assert ran.code == 0, ran
        (file,) = json.loads(ran.out)["files"]
        lines = [line for line in file["text"].splitlines() if line.startswith("device_spec")]
        base = nova_conf(self.release, placement=self.world.placement, report=self.report).splitlines()
        others = [line for line in base if not line.startswith("device_spec")]
        place = others.index("[pci]") + 1
        config = "\n".join([*others[:place], *lines, *others[place:]])
        files = self.world.nova.write_config(self.host, [config])
        self.world.nova.control.restart_compute(self.host, config=files)
        self.world.nova.control.periodic(self.host)
        return lines
