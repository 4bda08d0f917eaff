"""Run the commands of the guide "Reclaim idle GPUs" against a real Nova, in which time passes at once."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from openstack.compute.v2.server import Server

from support.cloudworld import World
from support.fleet_runs import execute

_SPEC = """\
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}}
  large: {match: {vendor: "10de", product: "25b6"}, vgpu: {type: A16-8Q}}
hosts: {gpu1: [k4200, large]}
reclaim: {projects: [admin], idle_after: {shutoff: 1h}, grace: 1h}
"""
_GUIDE = Path(__file__).parents[2] / "docs/howto/reclaim-idle-gpus.md"


@dataclass
class Reclaim:
    """The operator's desk: the spec."""

    world: World
    directory: Path

    def __post_init__(self) -> None:
        self.spec.write_text(_SPEC, encoding="utf-8")

    @property
    def spec(self) -> Path:
        return self.directory / "gpustack.yaml"

    def guided(self, action: str, *more: str, code: int = 0) -> str:
        """Run every command of the guide with this action; return the output of the last one."""
        out = ""
        commands = re.findall(rf"^\$ gpustack (reclaim {action}.*)$", _GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
        assert commands
        for command in commands:
            words = [self._replaced(word) for word in command.split()]
            ran = execute(self.world.nova.clouds_yaml, *words, *more)
            assert ran.code == code, (command, ran)
            out = ran.out + ran.err
        return out

    def _replaced(self, word: str) -> str:
        return str(self.spec) if word == "gpustack.yaml" else word

    def steps(self, *options: str) -> dict[str, tuple[str, list[str]]]:
        """The next step of each instance of the plan, and the codes of its findings."""
        ran = execute(self.world.nova.clouds_yaml, "reclaim", "plan", str(self.spec), "-f", "json", *options)
        assert ran.code == 0, ran
        rows: list[dict[str, Any]] = json.loads(ran.out)
        return {row["server"]: (row["step"], [found["code"] for found in row["findings"]]) for row in rows}

    def age(self, *servers: Server) -> None:
        """Two hours pass for stopped instances: the time of their actions, and of their notices."""
        ago = datetime.now(UTC).replace(tzinfo=None) - timedelta(hours=2)
        for server in servers:
            statement = "UPDATE instance_actions SET start_time = :ago WHERE instance_uuid = :vm"
            assert self.world.sql(statement, ago=f"{ago:%F %T}", vm=server.id)
            if "gpustack:reclaim_at" in self.world.api.compute.get_server(server.id).metadata:
                self.world.api.compute.set_server_metadata(server, **{"gpustack:reclaim_at": f"{ago:%FT%TZ}"})

    def statuses(self, *servers: Server) -> list[str]:
        """The present statuses of instances."""
        return [self.world.api.compute.get_server(server.id).status for server in servers]
