"""``gpustack capacity``: options, output, exit codes. The cloud is a stand-in; tests/nova/capacity has a real one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustack.base.errors import PartialError, UsageError
from gpustack.cli.app import main
from gpustack.cli.cloud import OpenStackCommand
from gpustack.operate.capacity import read
from gpustack.operate.capacity.assess import State
from gpustack.operate.capacity.model import Cards, Host

SPEC = """
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {"gpu[1:4]": [k4200]}
nova: {release: "2025.2"}
flavors:
  "g{count}": {model: k4200, count: [1, 4], per_gpu: {vcpus: 4, ram: 16GiB, disk: 10}}
"""
AMOUNTS = {"VCPU": 32, "MEMORY_MB": 1 << 17, "DISK_GB": 1000}
HOSTS = tuple(
    Host(
        uuid=f"gpu{number}",
        name=f"gpu{number}",
        cards=(Cards(aliases=frozenset({"k4200"}), count=3 if number == 1 else 4),),
        amounts=AMOUNTS,
        free=(1 << 17, 32, 1024000),
    )
    for number in range(1, 5)
)


class Cloud:
    """A stand-in for the reading of a cloud."""

    def __init__(self) -> None:
        self.state = State(hosts=HOSTS)
        self.asked: dict[str, Any] = {}

    def read(self, *_arguments: object, **options: Any) -> State:
        self.asked = options
        return self.state


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    stand_in = Cloud()
    monkeypatch.setattr(OpenStackCommand, "connection", lambda *_arguments, **_options: None)
    monkeypatch.setattr("gpustack.cli.capacity.state", stand_in.read)
    monkeypatch.setattr(read, "accepted", lambda _cloud, _demand, nodes, _progress: frozenset(nodes))
    return stand_in


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "gpustack.yaml"
    path.write_text(SPEC)
    return str(path)


def test_the_table_counts_each_flavor(cloud: Cloud, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capacity", spec]) == 0
    output = capsys.readouterr().out
    assert "| g1     | 1 k4200 | 15   | 15        | -" in output
    assert "| g4     | 4 k4200 | 3    | 15        | 3 GPUs free, none in a group of 4 |" in output


def test_yaml_has_the_same_data_as_json(cloud: Cloud, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capacity", spec, "-f", "json"]) == 0
    expected = json.loads(capsys.readouterr().out)
    assert main(["capacity", spec, "-f", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == expected
    assert expected[1]["limits"] == [{"reason": "fragments", "gpus": 3, "hosts": ["gpu1"], "most_on_one_host": 3}]


def test_hosts_are_listed_on_request(cloud: Cloud, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capacity", spec, "--hosts", "--flavor", "g4", "-f", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == [
        '"Flavor","Host","Zone","Fits","GPUs left","Limit"',
        '"g4","gpu1","-",0,3,"fewer than 4 GPUs left"',
        '"g4","gpu2","-",1,0,"-"',
    ]


def test_gaps_are_reported_and_have_their_exit_code(
    cloud: Cloud, spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud.state = State(hosts=(*HOSTS, Host(uuid="x", name="x", cards=None)), gaps=("Nova: a cell does not answer",))
    assert main(["capacity", spec, "-f", "json"]) == PartialError.exit_code
    output = capsys.readouterr()
    assert [(row["least"], row["most"]) for row in json.loads(output.out)] == [(15, None), (3, None)]
    assert "partial: Nova: a cell does not answer" in output.err


def test_fragments_are_a_finding(cloud: Cloud, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    cloud.state = State(hosts=(HOSTS[0], Host(uuid="y", name="y", cards=HOSTS[0].cards, amounts=AMOUNTS)))
    assert main(["capacity", spec]) == 0
    output = capsys.readouterr().err
    assert "GPU730 g4: free GPUs: 6, and no host has 4 of them" in output


def test_a_simulation_compares_settings(
    cloud: Cloud, spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "plot.svg"
    more = ["--empty", "--requests", "200", "--set", "pci_weight_multiplier=10,ram_weight_multiplier=-1"]
    assert main(["capacity", spec, "--simulate", "g1:3,g4:1", *more, "--plot", str(picture), "-f", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert cloud.asked["empty"] is True
    assert [(row["setting"], row["flavor"]) for row in rows] == [
        (setting, flavor)
        for setting in ("default", "pci_weight_multiplier=10,ram_weight_multiplier=-1")
        for flavor in (None, "g1", "g4")
    ]
    assert {row["requests"] for row in rows if row["flavor"] is None} == {160}
    assert picture.read_text().startswith("<svg")


def test_a_recorded_stream_is_replayed(
    cloud: Cloud, spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without PCIWeigher, four small instances are spread over four hosts, and no large one fits any more."""
    cloud.state = State(hosts=tuple(replace(host, cards=HOSTS[1].cards) for host in HOSTS))
    path = tmp_path / "requests.csv"
    small = [f"{time},g1,100" for time in range(4)]
    path.write_text("\n".join(["time,flavor,life", *small, *(f"{time},g4," for time in range(5, 8))]))
    assert main(["capacity", spec, "--simulate", str(path), "--set", "pci_weight_multiplier=0", "-f", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    refused = {(row["setting"], row["flavor"]): (row["refused"], row["refused_with_gpus_free"]) for row in rows}
    assert refused["default", "g4"] == (0, 0)
    assert refused["pci_weight_multiplier=0", "g4"] == (3, 3)
    assert refused["pci_weight_multiplier=0", "g1"] == (0, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--flavor", "g9"], "the spec has no flavor 'g9'"),
        (["--empty"], "--empty needs --simulate"),
        (["--set", "pci_weight_multiplier=2"], "--set needs --simulate"),
        (["--simulate", "g1"], "is not FLAVOR:PART"),
        (["--simulate", "g9:1"], "the spec has no flavor 'g9'"),
        (["--simulate", "g1:1", "--set", "io_ops_weight_multiplier=2"], "is no option of the simulation"),
        (["--simulate", "g1:1", "--set", "pci_weight_multiplier=x"], "expected a number of at least 0"),
        (["--simulate", "g1:1", "--set", "pci_weight_multiplier=-1"], "expected a number of at least 0"),
        (["--simulate", "g1:1", "--set", "ram_weight_multiplier=nan"], "expected a number, as in nova.conf"),
    ],
)
def test_unusable_options_are_refused(
    cloud: Cloud, spec: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["capacity", spec, *options]) == UsageError.exit_code
    assert message in capsys.readouterr().err


def test_a_fleet_without_free_gpus_can_be_simulated_as_if_empty_only(
    cloud: Cloud, spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud.state = State(hosts=())
    assert main(["capacity", spec, "--simulate", "g1:1"]) == UsageError.exit_code
    assert "--empty" in capsys.readouterr().err
