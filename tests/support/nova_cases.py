"""The linter's cases, as data: see the top of ``lint/aliases.yaml``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gpustack.configure.lint.subject import InstanceShape
from gpustack.hosts.facts.model import Host
from support.nova_hosts import host, raw

_DIRECTORY = Path(__file__).parents[1] / "unit" / "configure" / "lint"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case."""

    name: str
    data: dict[str, Any]

    def written(self, directory: Path) -> list[Path]:
        """Write the files below a directory."""
        paths = []
        for name, text in self.data["files"].items():
            paths.append(directory / name)
            paths[-1].parent.mkdir(parents=True, exist_ok=True)
            paths[-1].write_text(text, encoding="utf-8")
        return paths

    def words(self, directory: Path) -> list[str]:
        """The arguments of the command line."""
        arguments = []
        for argument in self.data.get("words", self.data["files"]):
            service, separator, path = argument.rpartition("=")
            arguments.append(f"{service}{separator}{directory / path}")
        return arguments

    @property
    def shapes(self) -> tuple[InstanceShape, ...]:
        """The instances of the spec's flavors."""
        return tuple(InstanceShape(**{"gpus": 1, **shape}) for shape in self.data.get("flavors", ()))

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts whose facts are passed to the linter."""
        snapshot = self.data.get("snapshot")
        return (_host(snapshot),) if snapshot and not self.data.get("judge_only_snapshot") else ()

    @property
    def judged_on(self) -> Host:
        """The host on which Nova evaluates the case."""
        return _host(self.data.get("snapshot", "k4200-prepared"))


def _host(name: str) -> Host:
    if name == "with-huge-pages":
        pages = [{"size_kib": 2048, "total": 0}, {"size_kib": 1 << 20, "total": 16}]
        return host("k4200-prepared", numa_nodes=[{"node": node, "huge_pages": pages[: 2 - node]} for node in (0, 1)])
    if name not in ("with-vf", "with-vfs"):
        return host(name)
    addresses = ["0000:05:02.0", "0000:05:02.1"][: 1 if name == "with-vf" else 2]
    pci = raw("mi300x")["pci"]
    main = next(f for f in pci if f["address"] == "0000:05:00.0")
    main["virtual_functions"] = addresses
    more: dict[str, Any] = {
        "product": "74b5",
        "physical_function": "0000:05:00.0",
        "virtual_functions": [],
        "sriov_totalvfs": None,
    }
    return host("mi300x", pci=[*pci, *({**main, **more, "address": address} for address in addresses)])


def cases() -> Iterator[Case]:
    """Every case of every file."""
    for path in sorted(_DIRECTORY.glob("*.yaml")):
        for name, data in yaml.safe_load(path.read_text(encoding="utf-8")).items():
            yield Case(name=f"{path.stem}: {name}", data=data)
