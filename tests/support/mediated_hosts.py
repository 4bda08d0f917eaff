"""Facts of hosts whose drivers create vGPUs: mediated devices on cards, or virtual functions with types; the cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gpustack.hosts.facts.model import Host
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Spec
from support.host_samples import Raw, function, host

_FILE = Path(__file__).parents[1] / "unit/configure/vgpus.yaml"
CASES: dict[str, Any] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
TYPES: Mapping[str, Mapping[str, Any]] = {
    "nvidia-710": {"name": "NVIDIA A16-4Q", "available": 4, "memory_mib": 4096},
    "nvidia-711": {"name": "NVIDIA A16-8Q", "available": 2, "memory_mib": 8192},
    "nvidia-474": {"name": "NVIDIA A100-1-5C", "available": 1, "memory_mib": 5120},
}
IDS = {"A16": "10de:25b6", "A100": "10de:20b5"}
NUMBERS = {"710": "NVIDIA A16-4Q", "711": "NVIDIA A16-8Q"}


def card(address: str, *, kind: str = "A16", used: Mapping[str, str | None] | None = None, **more: Any) -> Raw:
    """A card with mediated devices.

    :param used: the type and user of its devices: ``{"nvidia-711": "instance …"}``.
    """
    types = [{"number": n, **t} for n, t in TYPES.items() if kind in t["name"]]
    devices = [
        {"uuid": f"aa618089-8b16-4d01-a136-{place:012x}", "type": type_, "user": user}
        for place, (type_, user) in enumerate((used or {}).items())
    ]
    defaults = {"driver": "nvidia", "vgpu_framework": "mdev", "vgpu_types": types, "mediated_devices": devices}
    return function(address, ids=IDS[kind], **{**defaults, **more})


def parted(address: str, count: int, *, kind: str = "A16", mdev: bool = False, current: str | None = None) -> list[Raw]:
    """A card whose virtual functions have types, or mediated devices."""
    slot = address.removesuffix("0.0")
    parts = [f"{slot}0.{number + 1}" for number in range(count)]
    types: Sequence[Mapping[str, Any]] = [{"number": number, "name": name} for number, name in NUMBERS.items()]
    own: dict[str, Any] = {"vgpu_framework": "vfio", "vgpu_types": types, "vgpu_type": current}
    if mdev:
        own = {"vgpu_framework": "mdev", "vgpu_types": [{"number": n, **t, "available": 1} for n, t in TYPES.items()]}
    of_card: dict[str, Any] = {"sriov_totalvfs": 16, "sriov_numvfs": count, "virtual_functions": parts}
    physical = function(address, ids=IDS[kind], driver="nvidia", vgpu_types=[] if mdev else types, **of_card)
    more = {"driver": "nvidia", "physical_function": address, "ids": IDS[kind]}
    return [physical, *(function(part, **more, **own, iommu_group=50 + n) for n, part in enumerate(parts))]


def mediated_host(*functions: Raw, name: str = "gpu01", driver: str | None = None) -> Host:
    """A host with these functions."""
    kernel = {"loaded_modules": ["nvidia", "nvidia_vgpu_vfio", "mdev"], "nvidia_driver": driver}
    return host(*functions, hostname=name, kernel=kernel)


def spec_of(case: Mapping[str, Any], placement: str = "off") -> Spec:
    """The spec of a case."""
    document = {
        "version": 1,
        "models": case["models"],
        "hosts": {"gpu*": [*case["models"]]},
        "nova": {"release": case["release"], "placement": placement},
        "out_of_service": case.get("out_of_service", []),
        "flavors": case.get("flavors", {}),
        **({"quotas": case["quotas"]} if "quotas" in case else {}),
    }
    return parse_spec(yaml.safe_dump(document), "gpustack.yaml")


def host_of(case: Mapping[str, Any], name: str = "gpu01") -> Host:
    """The host of a case."""
    functions: list[Raw] = []
    for entry in case["cards"]:
        parts = entry.get("parts")
        functions += parted(entry["address"], parts, mdev=True) if parts else [card(**entry)]
    return mediated_host(*({**f, "iommu_group": n} for n, f in enumerate(functions)), name=name)
