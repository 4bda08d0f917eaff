"""``gpustack why flavor`` and ``why host``: options, output, exit codes. Nova and Placement are made, sshd is real."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpustack.base import silence
from gpustack.base.errors import CloudError, PartialError
from gpustack.cli.app import main
from gpustack.cli.cloud import OpenStackCommand
from gpustack.cloud.flavors import Flavor, Sizes
from gpustack.cloud.limits import Limit, Present
from gpustack.hosts.facts.store import save_snapshot
from gpustack.nova_options.scheduler import Scheduler
from gpustack.operate.capacity import read as placement
from gpustack.operate.capacity.assess import State
from gpustack.operate.capacity.model import Cards, Host, Reason
from gpustack.operate.why import read
from gpustack.repair.hypervisor import Usage
from support import growing_fleets
from support.fleet_answers import device, facts
from support.fleet_cloud import StandIn, instance, servers, with_devices
from support.sshd import Sshd

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
    assert "g4: 2 more fit, on 1 host" in err
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


LIMITS = {"maxTotalInstances": 10, "totalInstancesUsed": 2, "maxTotalRAMSize": -1, "totalRAMUsed": 1 << 20}


@pytest.mark.parametrize(
    ("cores", "used", "number", "step"), [(20, 12, 2, "PciPassthroughFilter"), (14, 12, 0, "API: quota")]
)
def test_the_quota_of_a_project_counts(
    known: dict[str, Any], cores: int, used: int, number: int, step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = {"limits": {"absolute": {**LIMITS, "maxTotalCores": cores, "totalCoresUsed": used}}}
    known["cloud"].answers[f"compute /limits?tenant_id={'a' * 32}"] = (200, limits)
    code, rows, err = asked(capsys, "g4", "--project", "a" * 32, "--exit-code", "--count", "2")
    assert f"the quota of the project allows {number}" in err
    assert (rows[0]["step"], code) == (step, 0 if number else 3)
    assert ("GPU587" in err) == (not number)


@pytest.mark.parametrize(("unified", "left", "number"), [(True, 15, 1), (True, 5, 0), (False, 5, 2), (None, 5, 2)])
def test_limits_of_resource_classes_count_if_nova_enforces_them(
    known: dict[str, Any],
    unified: bool | None,
    left: int,
    number: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An instance has 10 GiB of disk. Keystone is a stand-in, with a default for other projects, and a limit."""
    default = Limit(id="1", resource_class="DISK_GB", limit=1 << 20)
    present = Present(defaults=(default,), limits=(replace(default, id="2", limit=100 + left, project="a" * 32),))
    keystone = SimpleNamespace(present=lambda: present, used=lambda _project: {"DISK_GB": 100})
    monkeypatch.setattr(read, "LimitsCloud", lambda _cloud: keystone)
    limits = {"limits": {"absolute": {**LIMITS, "maxTotalCores": 20, "totalCoresUsed": 12}}}
    known["cloud"].answers[f"compute /limits?tenant_id={'a' * 32}"] = (200, limits)
    known["state"] = replace(known["state"], scheduler=Scheduler(unified=unified))
    code, rows, err = asked(capsys, "g4", "--project", "a" * 32, "--exit-code")
    assert f"the quota of the project allows {number}" in err
    assert ("unless limits in Keystone replace it" in err) == (unified is None)
    assert (rows[0]["step"], code) == ("PciPassthroughFilter", 0) if number else ("API: quota", 3)
    assert ("DISK_GB needs 10, 5 left" in err) == (number == 0)


def test_a_quota_that_may_not_be_read_is_a_gap(known: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    code, _rows, err = asked(capsys, "g4", "--project", "a" * 32, "--exit-code")
    assert (code, "partial: " in err, "allows" in err) == (PartialError.exit_code, True, False)


@pytest.mark.parametrize(("limit", "warned"), [("", True), ("max_allocation_candidates = 1000", False)])
def test_many_candidates_are_computed_and_not_requested(
    one_gpu: StandIn, limit: str, warned: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """8 of 8 GPUs have 40,320 candidates; Placement is never asked for them."""
    eight = with_devices([device("gpu1", bus) for bus in range(0x81, 0x89)])
    one_gpu.answers.update(eight.answers)
    specs = {"pci_passthrough:alias": "k4200:8"}
    entry = {"id": "8", "name": "g8", "vcpus": 1, "ram": 512, "disk": 1, "extra_specs": specs}
    one_gpu.answers["compute /flavors/detail"] = (200, {"flavors": [{**entry, "os-flavor-access:is_public": True}]})
    one_gpu.answers["compute /servers/detail"] = servers()
    Path("placement.conf").write_text(f"[placement]\n{limit}\n[filter_scheduler]\npci_in_placement = true\n")
    monkeypatch.setattr("gpustack.cli.why.databases_of", lambda _parsed_args: None)
    code, _rows, err = asked(capsys, "g8", "--config-file", "placement.conf")
    assert (code, "g8: 1 more fit" in err) == (0, True), err
    assert ("GPU595" in err, "40320 candidates" in err) == (warned, warned)
    asks = [line for line in one_gpu.requests if line.startswith("placement ")]
    assert asks
    assert not [line for line in asks if "CUSTOM_PCI" in line and "allocation_candidates" in line]


def test_properties_of_an_image_count(known: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    _code, rows, err = asked(capsys, "g4", "--image", "pinned")
    assert rows[0]["step"] == "API"
    assert "not divisible by 3 NUMA nodes" in err
    code, _rows, err = asked(capsys, "g4", "--image", "pined")
    assert (code, "use one of: pinned" in err) == (2, True)


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> StandIn:
    """One GPU in Placement."""
    made = with_devices([device("gpu1", 0x81)])
    made.answers["compute /servers/detail?all_tenants=1"] = servers()
    monkeypatch.setattr(OpenStackCommand, "connection", lambda *_arguments, **_options: made)
    monkeypatch.chdir(tmp_path)
    Path("gpustack.yaml").write_text(SPEC, encoding="utf-8")
    return made


def test_a_snapshot_shows_the_links_of_each_gpu(one_gpu: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    save_snapshot(Path("fleet.json"), [facts("gpu1", 0x81, 0x82).model_dump(mode="json", by_alias=True)])
    code = main(["why", "host", "gpu1", "--snapshot", "fleet.json", "-f", "json", "--exit-code"])
    output = capsys.readouterr()
    assert code == 3, output.err
    assert [(row["address"], row["host"], row["placement"], row["broken"]) for row in json.loads(output.out)] == [
        ("0000:81:00.0", True, True, None),
        ("0000:82:00.0", True, False, "Placement"),
    ]


KERNEL = "[ 0.0] Linux version 6.12.1 (d)\n[ 0.4] pci 0000:00:04.0: [1af4:1000] type 00 class 0x020000\n"
IN_GUEST = KERNEL + "[ 0.4] pci 0000:00:05.0: [10de:11b4] type 00 class 0x030000\n"


@pytest.mark.parametrize(
    ("allocated", "domain", "console", "link", "codes", "exit_code"),
    [
        (True, True, IN_GUEST, None, set(), 0),
        (False, True, IN_GUEST, "Placement", {"GPU585"}, 3),
        (True, False, IN_GUEST, "domain", {"GPU586"}, 3),
        (True, True, KERNEL, None, {"GPU845"}, 3),
    ],
)
def test_the_broken_link_of_a_running_instance_is_named(
    one_gpu: StandIn,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    allocated: bool,
    domain: bool,
    console: str,
    link: str | None,
    codes: set[str],
    exit_code: int,
) -> None:
    uuid = "5f0c1b8e-6f5e-4b5f-9a55-1e1d6a1c2b3d"
    one_gpu.answers[f"compute /servers/{uuid}"] = (200, {"server": {**instance(uuid), "OS-EXT-STS:power_state": 1}})
    one_gpu.answers[f"compute /servers/{uuid}/os-instance-actions"] = (200, {"instanceActions": []})
    one_gpu.answers[f"compute POST /servers/{uuid}/action"] = (200, {"output": console})
    gpu = {"uuid": "p-81", "name": "gpu1_0000:81:00.0", "root_provider_uuid": "p", "generation": 1}
    one_gpu.answers["placement /resource_providers?in_tree="] = (200, {"resource_providers": [gpu]})
    held = {"p": {"resources": {"VCPU": 1}}, **({"p-81": {"resources": {"CUSTOM_GPU": 1}}} if allocated else {})}
    one_gpu.answers[f"placement /allocations/{uuid}"] = (200, {"allocations": held})
    users = {"0000:81:00.0": frozenset({uuid})} if domain else {"0000:82:00.0": frozenset({"other"})}
    monkeypatch.setattr("gpustack.cli.why.Hypervisors.ask", lambda _self, _host: Usage(users=users))
    code = main(["why", "instance", uuid, "--ask-host", "-f", "json", "--exit-code"])
    output = capsys.readouterr()
    found = json.loads(output.out)
    assert [entry["broken"] for entry in found["gpus"]] == [link]
    assert {entry["code"] for entry in found["findings"] if entry["severity"] != "info"} == codes
    assert code == exit_code, output.err


def test_a_user_without_the_role_admin_is_not_shown_a_guess(
    one_gpu: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nova and Placement refuse to list anything but the user's own instances."""
    refused = (403, {"forbidden": {"message": "Policy doesn't allow it to be performed."}})
    uuid = "5f0c1b8e-6f5e-4b5f-9a55-1e1d6a1c2b3d"
    own = {**instance(uuid, host=None), "name": "own", "status": "ERROR", "fault": {"message": "No valid host"}}
    for path in ("compute /os-services", "compute /os-hypervisors", "compute /os-aggregates", "placement /"):
        one_gpu.answers[path] = refused
    for path in [path for path in one_gpu.answers if path.startswith("placement")]:
        one_gpu.answers[path] = refused
    one_gpu.answers["compute /servers/detail?all_tenants=1"] = refused
    one_gpu.answers["compute /servers/detail?"] = servers(own)
    one_gpu.answers[f"compute /servers/{uuid}"] = (200, {"server": own})
    one_gpu.answers[f"compute /servers/{uuid}/os-instance-actions"] = (200, {"instanceActions": []})
    assert main(["why", "instance", "own", "-f", "json"]) == 0
    output = capsys.readouterr()
    found = json.loads(output.out)
    assert (found["reason"], found["fits_on"], found["causes"]) == ("No valid host", None, [])
    assert "partial: whether it fits now is unknown: " in output.err
    assert "role admin" in output.err
    assert main(["why", "instance", "others"]) == 2
    assert "there is no instance of your project 'others'" in capsys.readouterr().err
    assert main(["why", "host", "gpu1"]) == CloudError.exit_code
    assert "whether there is a host 'gpu1' is unknown" in capsys.readouterr().err


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    server = Sshd(directory=tmp_path / "server")
    server.start()
    yield server
    server.stop()


def test_the_host_is_asked_in_one_session(one_gpu: StandIn, sshd: Sshd, capsys: pytest.CaptureFixture[str]) -> None:
    """This machine answers, which has no GPU at this address."""
    Path("config").write_text(f"Host gpu1\nHostName 127.0.0.1\nPort {sshd.port}\nIdentityFile {sshd.client_key}\n")
    Path("known").write_text(sshd.known())
    more = ["--ssh-config", "config", "--known-hosts", "known", "--timeout", "120"]
    code = main(["why", "host", "gpu1", "--ask-host", *more, "-f", "json", "--exit-code"])
    assert silence._waited >= 15  # the share of the host in what silent sources may take
    output = capsys.readouterr()
    assert code == 3, output.err
    assert [row["broken"] for row in json.loads(output.out) if row["address"] == "0000:81:00.0"] == ["host"]
    assert "GPU589" in output.err
    assert (sshd.directory / "log").read_text().count("Accepted publickey") == 1


def test_a_silent_host_leaves_the_answer_partial(one_gpu: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    Path("config").write_text("Host gpu1\nHostName 127.0.0.1\nPort 9\n")
    code = main(["why", "host", "gpu1", "--ask-host", "--ssh-config", "config", "-f", "json", "--exit-code"])
    output = capsys.readouterr()
    assert code == PartialError.exit_code
    assert "partial: gpu1: " in output.err
    assert json.loads(output.out)[0]["host"] is None


def test_a_flavor_takes_the_requests_of_capacity(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And one of Placement, which capacity does not ask about hosts without a free GPU. None per host.

    The project takes one for its quotas, and its name and access to a private flavor one each.
    """
    sizes = growing_fleets.Sizes(hosts=10)
    places = growing_fleets.written(tmp_path, sizes)
    spec, facts = str(places["spec"]), ["--snapshot", str(places["snapshot"])]
    counts = []
    for words in (
        ["capacity", spec, "--flavor", "one", *facts],
        ["why", "flavor", "one", "--spec", spec, *facts],
        ["why", "flavor", "one", "--spec", spec, *facts, "--project", "a" * 32],
    ):
        cloud = growing_fleets.cloud(sizes)
        monkeypatch.setattr(OpenStackCommand, "connection", lambda *_arguments, made=cloud, **_options: made)
        assert main(words) == 0
        counts.append(len(cloud.requests))
    assert [count - counts[0] for count in counts] == [0, 1, 2]
    assert len(capsys.readouterr().out.splitlines()) <= 40
