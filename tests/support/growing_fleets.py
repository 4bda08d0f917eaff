"""Snapshots, specs and clouds of any size, of which one dimension grows."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any

import yaml

from gpustack.connect.playbooks.record import HostRecord, RunOutcome
from gpustack.connect.playbooks.results import RunResults, SpecSeen, save
from gpustack.fleet.placement import Device
from support.cellfile import CellFile, nova_conf
from support.fleet_cloud import StandIn, instance, servers, with_devices
from support.host_samples import Raw, snapshot

DIMENSIONS = ("hosts", "patterns", "gpus", "models", "flavors", "pairs", "projects", "aggregates", "findings", "vgpus")
FIRST, SECOND = "0000:84:00", "0000:88:00"
"""The slots of the sample's GPUs."""
_SIZE = {"ram": 4096, "vcpus": 2, "disk": 10}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much there is of everything.

    :ivar hosts: hosts with a line of their own in the spec, an entry of ``out_of_service`` and an instance each.
    :ivar patterns: more hosts, each with a pattern of its own.
    :ivar gpus: further GPUs of the first host.
    :ivar models: further models of GPUs, of which the hosts have none.
    :ivar flavors: further flavors, which the cloud has.
    :ivar pairs: further models, each with a flavor of its own that the cloud lacks.
    :ivar projects: further projects, each with a quota, a limit in the cloud and a stopped instance elsewhere.
    :ivar aggregates: further aggregates of the cloud, with all hosts.
    :ivar findings: further hosts in the databases, each with a stale row of ``pci_devices``.
    :ivar vgpus: cards with sixteen vGPUs each, below one further host.
    """

    hosts: int = 2
    patterns: int = 0
    gpus: int = 0
    models: int = 0
    flavors: int = 0
    pairs: int = 0
    projects: int = 0
    aggregates: int = 0
    findings: int = 0
    vgpus: int = 0


def written(directory: Path, sizes: Sizes) -> Mapping[str, Path]:
    """Write a spec and a snapshot; returns their paths."""
    paths = {name: directory / f"{name}.{kind}" for name, kind in (("spec", "yaml"), ("snapshot", "json"))}
    paths["spec"].write_text(yaml.safe_dump(spec(sizes)), encoding="utf-8")
    document = {"gpustack_snapshot": 1, "hosts": hosts(sizes)}
    paths["snapshot"].write_text(json.dumps(document), encoding="utf-8")
    known = projects(sizes)
    sections = {
        "quotas": {"default": {"k4200": 0}, "projects": {name: {"k4200": 2} for name in known}},
        "tenancy": {"aggregates": {"gpu": {"projects": known[-7:]}}},
        "reclaim": {"projects": known, "idle_after": {"shutoff": "7d"}},
    }
    paths["cloud_spec"] = directory / "cloud.yaml"
    of_cloud: dict[str, Any] = {**spec(sizes), **sections}
    del of_cloud["flavors"]["any"]  # quotas do not count GPUs that are selected by attribute
    paths["cloud_spec"].write_text(yaml.safe_dump(of_cloud), encoding="utf-8")
    return {**paths, "out": directory / "out", "records": records(directory, sizes)}


def records(directory: Path, sizes: Sizes) -> Path:
    """A directory with the records of two slices; each host has a long plan of its own."""
    made = directory / "records"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    texts = {f"gpu{number:04}": f"gpu{number:04}: 1 file\n" + f"  {number}\n" * 50 for number in range(sizes.hosts)}
    hosts = [HostRecord(host=name, text=text, outcome=RunOutcome.NOTHING) for name, text in texts.items()]
    seen = (SpecSeen(path="gpustack.yaml", sha256="0" * 64, hosts=tuple(texts)),)
    for part in (hosts[::2], hosts[1::2]):
        save(RunResults(playbook="plan", specs=seen, hosts=tuple(part)), made)
    return made


def spec(sizes: Sizes) -> dict[str, Any]:
    """Two models on every host; flavors by model and by attribute."""
    models: dict[str, Any] = {
        "k4200": {"match": {"vendor": "10de", "product": "11b4"}},
        "p100": {"match": {"vendor": "10de", "product": "15f8"}},
    }
    for number in range(sizes.models):
        models[f"m{number}"] = {"match": {"vendor": "10de", "product": f"{0x3000 + number:04x}"}, "driver": "vfio-pci"}
    flavors: dict[str, Any] = {
        "one": {"model": "k4200", "vcpus": 2, "ram": "4GiB", "disk": 10},
        "any": {"gpu": {"generation": "Pascal"}, "vcpus": 2, "ram": "4GiB", "disk": 10},
    }
    for number in range(sizes.flavors):
        flavors[f"f{number}"] = {"model": "p100", "vcpus": 3 + number, "ram": "4GiB", "disk": 10}
    for number in range(sizes.pairs):
        models[f"pair{number}"] = {"match": {"vendor": "10de", "product": f"{0xA000 + number:04x}"}}
        flavors[f"pair{number}"] = {"model": f"pair{number}", "vcpus": 2, "ram": "4GiB", "disk": 10}
    of_hosts = ["k4200", "p100"]
    patterns = dict.fromkeys(names(sizes)[: sizes.hosts], of_hosts)
    patterns |= {f"{name}*": of_hosts for name in names(sizes)[sizes.hosts :]}
    return {
        "version": 1,
        "models": models,
        "hosts": patterns,
        "flavors": flavors,
        "nova": {"release": "2025.2", "placement": "schedule", "class_by": "pool"},
        "out_of_service": [
            {"host": name, "address": f"{SECOND}.0", "reason": "no reset"} for name in names(sizes)[: sizes.hosts]
        ],
    }


def projects(sizes: Sizes) -> list[str]:
    """The names of all projects, which are their ids too."""
    return [f"p{number}" for number in range(1, sizes.projects + 2)]


def names(sizes: Sizes) -> list[str]:
    """The names of all hosts."""
    return [f"gpu{number:05d}" for number in range(sizes.hosts + sizes.patterns)]


def hosts(sizes: Sizes) -> list[Raw]:
    """The facts of all hosts: a real host, with two models, and serial numbers of its own."""
    sample = snapshot("k4200-prepared")
    found = []
    for number, name in enumerate(names(sizes)):
        raw = {**sample, "hostname": name, "pci": copy.deepcopy(sample["pci"])}
        for function in raw["pci"]:
            if function["address"] == f"{SECOND}.0":
                function["product"] = "15f8"
                function["serial"] = f"24-6e-96-ff-ff-{number >> 8:02x}-{number & 255:02x}-20"
        raw["pci"] += further(sample, sizes.gpus if number == 0 else 0)
        found.append(raw)
    return found


def further(sample: Raw, count: int) -> list[Raw]:
    """More GPUs, each with its port, its sound function and its group."""
    parts = [f for f in sample["pci"] if f["address"].startswith(FIRST) or f["address"] == "0000:80:02.0"]
    copies = []
    for number in range(count):
        domain = f"{1 + (number >> 5):04x}"
        bus = f"{domain}:{0x40 + (number & 31):02x}:00"
        port = f"{domain}:80:{number & 31:02x}.0"
        for part in parts:
            changed = {**part, "address": port if part["address"].startswith("0000:80") else part["address"]}
            if changed["address"].startswith(FIRST):
                changed |= {"address": part["address"].replace(FIRST, bus), "parent": port}
                changed["iommu_group"] = 1000 + number
            else:
                changed["iommu_group"] = 2000 + number
            copies.append(changed)
    return copies


def cloud(sizes: Sizes) -> StandIn:
    """A Placement and a Nova with the GPUs of these hosts: one is used by an instance, one is free."""
    of_hosts = {name: [(f"{slot}.0", "CUSTOM_GPU") for slot in (FIRST, SECOND)] for name in names(sizes)}
    found = cloud_of(of_hosts, vgpus=sizes.vgpus)
    known = projects(sizes)
    instances = [*found.answers["compute /servers/detail?all_tenants=1"][1]["servers"]]  # type: ignore[index]
    instances += [instance(f"of-{name}", host="elsewhere", tenant_id=name, status="SHUTOFF") for name in known]
    aggregates = [
        {"id": number, "uuid": f"aggregate-{number}", "name": f"other-{number}", "hosts": names(sizes), "metadata": {}}
        for number in range(sizes.aggregates)
    ]
    of_earlier_spec = {"gpustack:tenancy": "CUSTOM_GPU_HOST"}
    aggregates.append({"id": -1, "uuid": "old", "name": "old", "hosts": names(sizes), "metadata": of_earlier_spec})
    limit = {"service_id": "nova", "region_id": "here", "resource_name": "class:CUSTOM_GPU_QUOTA_K4200"}
    of_projects = [{**limit, "id": name, "project_id": name, "resource_limit": 1} for name in known]
    flavors = [
        {
            **_SIZE,
            "id": f"f{number}",
            "name": f"f{number}",
            "vcpus": 3 + number,
            "extra_specs": {"pci_passthrough:alias": "p100:1"},
        }
        for number in range(sizes.flavors)
    ]
    flavors.append({**_SIZE, "id": "one", "name": "one", "extra_specs": {"pci_passthrough:alias": "k4200:1"}})
    found.headers["Date"] = formatdate(usegmt=True)
    times = {"start_time": "2026-01-02T03:04:05.000000", "updated_at": "2026-01-02T03:04:06.000000"}
    stop = {"action": "stop", "request_id": "req-1", "message": None, **times}
    found.answers |= {
        f"{service} {path}": (200, {key: content})
        for service, path, key, content in (
            ("compute", "/servers/detail?all_tenants=1", "servers", instances),
            ("compute", "/servers?limit=1", "servers", []),
            ("compute", "/os-aggregates", "aggregates", aggregates),
            ("compute", "/flavors/detail", "flavors", flavors),
            ("identity", "/projects", "projects", [{"id": name, "name": name} for name in known]),
            *(("identity", f"/projects?name={name}", "projects", [{"id": name, "name": name}]) for name in known),
            ("identity", "/services?type=compute", "services", [{"id": "nova"}]),
            ("identity", "/endpoints", "endpoints", [{"region_id": "here"}]),
            ("identity", "/limits/model", "model", {"name": "flat"}),
            ("identity", "/registered_limits", "registered_limits", [{**limit, "id": "default", "default_limit": 0}]),
            ("identity", "/limits?", "limits", of_projects),
            *(("compute", f"/servers/of-{name}/os-instance-actions", "instanceActions", [stop]) for name in known),
            ("placement", "/usages", "usages", {"CUSTOM_GPU_QUOTA_K4200": 1}),
            ("placement", "/resource_providers?required=CUSTOM_GPU_HOST", "resource_providers", []),
        )
    }
    return found


def cloud_of(hosts: Mapping[str, Sequence[tuple[str, str]]], vgpus: int = 0) -> StandIn:
    """A Placement and a Nova with these hosts, each with the addresses and resource classes of its GPUs.

    An instance uses the first GPU of each host.

    :param vgpus: the number of cards with vGPUs.
    """
    devices = [
        Device(
            uuid=f"{name}-{address}".translate({ord(":"): "-", ord("."): "-"}),
            name=f"{name}_{address}",
            root=name,
            node=name,
            address=address,
            resource_class=resource_class,
            capacity=1,
            used=int((address, resource_class) == gpus[0]),
        )
        for name, gpus in hosts.items()
        for address, resource_class in gpus
    ]
    devices += [
        Device(
            uuid=f"card-{number}",
            name=f"shared_pci_0000_{number & 255:02x}_00_{number >> 8}",
            root="shared",
            node="shared",
            address=f"0000:{number & 255:02x}:00.{number >> 8}",
            resource_class="VGPU",
            capacity=16,
            mediated=True,
        )
        for number in range(vgpus)
    ]
    stand_in = with_devices(devices, {f"vm-{d.node}": {d.uuid: 1} for d in devices if d.used})
    stand_in.answers["compute /servers/detail?all_tenants=1"] = servers(
        *(instance(f"vm-{name}", host=name) for name in hosts)
    )
    return stand_in


def databases(directory: Path, sizes: Sizes) -> Path:
    """Nova's databases with these hosts, each with an instance that holds its first GPU; returns nova.conf."""
    cell = CellFile(f"sqlite:///{directory}/cell.sqlite")
    for name in [*names(sizes), *(f"stale{number}" for number in range(sizes.findings))]:
        node = cell.host(name, seen=1)
        owner = f"gone-{name}" if name.startswith("stale") else cell.instance(f"vm-{name}", name)
        cell.device(node, f"{FIRST}.0", "allocated", instance_uuid=owner, request_id="r1")
        cell.device(node, f"{SECOND}.0")
    with cell.engine.begin() as connection:  # as the cloud has them
        connection.exec_driver_sql("UPDATE compute_nodes SET uuid = host")
    return nova_conf(directory, {"cell": cell.url})
