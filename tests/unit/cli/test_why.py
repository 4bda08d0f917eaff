"""``gpustack why flavor``: options, output, exit codes. Hosts, flavors and Placement are made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.errors import PartialError
from gpustack.cli.app import main
from gpustack.cli.cloud import OpenStackCommand
from gpustack.cloud.flavors import Flavor, Sizes
from gpustack.operate.capacity import read as placement
from gpustack.operate.capacity.assess import State
from gpustack.operate.capacity.model import Cards, Host, Reason
from gpustack.operate.why import read
from support.fleet_cloud import StandIn

SPEC = 'version: 1\nmodels: {k4200: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {"gpu[1:3]": [k4200]}\n'
AMOUNTS = {"VCPU": 32, "MEMORY_MB": 1 << 17, "DISK_GB": 1000}


def host(name: str, count: int, **more: Any) -> Host:
    cards = (Cards(aliases=frozenset({"k4200"}), count=count),)
    return Host(uuid=name, name=name, cards=cards, amounts=AMOUNTS, **more)


def flavor(name: str, **more: Any) -> Flavor:
    specs = {"pci_passthrough:alias": "k4200:4"}
    return Flavor(id=f"id-{name}", name=name, sizes=Sizes(vcpus=4, ram=4096, disk=10), **{"extra_specs": specs, **more})


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """What is read: the state, which tests change, and the requests."""
    entries = (flavor("g4"), flavor("private", public=False), flavor("cpu", extra_specs={}))
    flavors = {entry.name: entry for entry in entries}
    hosts = (host("gpu1", 8), host("gpu2", 3), host("gpu3", 8, closed=Reason.DISABLED))
    made: dict[str, Any] = {"state": State(hosts=hosts, flavors=flavors), "cloud": StandIn()}
    access = {"flavor_access": [{"flavor_id": "id-private", "tenant_id": "a" * 32}]}
    made["cloud"].answers["compute /flavors/id-private/os-flavor-access"] = (200, access)
    image = {
        "id": "i1",
        "name": "pinned",
        "status": "active",
        "visibility": "public",
        "hw_cpu_policy": "dedicated",
        "hw_numa_nodes": "3",
    }
    made["cloud"].answers["image /images"] = (200, {"images": [image]})
    monkeypatch.setattr(OpenStackCommand, "connection", lambda *_arguments, **_options: made["cloud"])
    monkeypatch.setattr(read, "state", lambda *_arguments, **_options: made["state"])
    monkeypatch.setattr(placement, "accepted", lambda _cloud, _demand, nodes, _progress: frozenset(nodes))
    monkeypatch.chdir(tmp_path)
    Path("gpustack.yaml").write_text(SPEC, encoding="utf-8")
    return made


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, Any]], str]:
    code = main(["why", "flavor", *words, "-f", "json"])
    output = capsys.readouterr()
    return code, json.loads(output.out) if output.out else [], output.err


def test_each_first_cause_has_its_hosts_and_fix(known: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    code, rows, err = asked(capsys, "g4")
    assert code == 0
    assert "g4: 2 more fit, on 1 hosts" in err
    assert [(row["hosts"], row["step"], row["code"]) for row in rows] == [
        (["gpu2"], "PciPassthroughFilter", "GPU579"),
        (["gpu3"], "compute_status_filter", "GPU574"),
    ]
    assert rows[0]["steps"]["gpu2"][0] == {
        "step": "API",
        "outcome": "passed",
        "wanted": None,
        "available": None,
        "doubt": None,
    }
    assert "openstack compute service set --enable" in rows[1]["fix"]


def test_one_host_has_all_steps(known: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    code, rows, _err = asked(capsys, "g4", "--host", "gpu2")
    steps = {row["step"]: row["outcome"] for row in rows}
    assert (code, steps["API"], steps["PciPassthroughFilter"]) == (0, "passed", "failed")
    code, _rows, err = asked(capsys, "g4", "--host", "gpu22")
    assert (code, "use one of: gpu2" in err) == (2, True)


def test_exit_codes_tell_programs(known: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, "g4", "--exit-code")[0] == 0
    assert asked(capsys, "g4", "--exit-code", "--count", "3")[0] == 3
    known["state"] = State(hosts=known["state"].hosts, flavors=known["state"].flavors, gaps=("Nova: a cell is silent",))
    code, _rows, err = asked(capsys, "g4", "--exit-code")
    assert (code, "partial: Nova: a cell is silent" in err) == (PartialError.exit_code, True)
    assert asked(capsys, "g4")[0] == 0


@pytest.mark.parametrize(("name", "text"), [("g5", "use one of: g4"), ("cpu", "requests no GPU")])
def test_an_unusable_name_is_a_usage_error(
    known: dict[str, Any], name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _rows, err = asked(capsys, name)
    assert (code, text in err) == (2, True)


def test_access_of_a_project_is_checked(known: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    for project, step in (("a" * 32, "PciPassthroughFilter"), ("b" * 32, "API")):
        _code, rows, _err = asked(capsys, "private", "--project", project)
        assert rows[0]["step"] == step
    assert len([line for line in known["cloud"].requests if "os-flavor-access" in line]) == 2


def test_properties_of_an_image_count(known: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    _code, rows, err = asked(capsys, "g4", "--image", "pinned")
    assert rows[0]["step"] == "API"
    assert "not divisible by 3 NUMA nodes" in err
    code, _rows, err = asked(capsys, "g4", "--image", "pined")
    assert (code, "use one of: pinned" in err) == (2, True)
