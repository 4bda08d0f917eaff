"""The part of the controller in nova.yml, against hosts that answer what no host of good faith would."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.errors import NovaConfigError
from gpustack.configure import plugin_api as controller
from gpustack.hosts.facts.store import save_snapshot
from support.mediated_hosts import CASES, host_of
from support.nova_hosts import host

SPEC = """\
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {gpu01: [k4200]}
nova: {release: "2025.2"}
"""
GOOD = {"path": "/etc/nova/nova.conf", "text": "[pci]\nreport_in_placement = true\n"}


def decide(
    tmp_path: Path, answer: object, services: tuple[str, ...] = ("compute",), *, text: str = "", **more: Any
) -> dict[str, Any]:
    """One host's files, with what the host answers."""
    spec = tmp_path / "gpustack.yaml"
    spec.write_text(text or SPEC, encoding="utf-8")
    facts = host("k4200-prepared").model_dump(mode="json", by_alias=True)
    decided = controller.overall(str(spec), {"gpu01": facts}, absent=["gpu02"])
    return controller.for_host(
        str(spec), decided, "gpu01", services=services, facts=facts, module_answer=answer, **more
    )


def test_malformed_facts_stop_all_hosts_and_name_the_hosts(tmp_path):
    """Without one host's cards nobody knows whether the aliases that every host gets are complete."""
    spec = tmp_path / "gpustack.yaml"
    spec.write_text(SPEC, encoding="utf-8")
    facts: dict[str, Any] = {"gpu01": host("k4200-prepared").model_dump(mode="json", by_alias=True)}
    facts |= {"gpu02": {"version": 1, "pci": [{"address": "evil"}]}, "gpu03": "x"}
    with pytest.raises(NovaConfigError, match="the facts of 2 of 3 hosts are malformed") as raised:
        controller.overall(str(spec), facts)
    assert "No host is changed" in str(raised.value)
    assert "--limit 'all:!gpu02:!gpu03' -e gpustack_nova_snapshot=FILE" in str(raised.value)


@pytest.mark.parametrize(
    ("services", "named", "failed", "files"),
    [
        (("compute",), False, False, 0),
        (("compute",), True, True, 0),
        (("api",), False, False, 1),  # a controller has no GPUs
        (("compute", "api"), False, False, 1),
    ],
)
def test_a_compute_host_that_the_spec_lacks_is_left_out(
    tmp_path: Path, services: tuple[str, ...], named: bool, failed: bool, files: int
) -> None:
    answer = {"files": [GOOD], "units": [], "pending": []}
    spec = SPEC.replace("gpu01:", "gpu02:")
    result = decide(tmp_path, answer, services, text=spec, named=named)
    assert (result.get("failed", False), len(result["write"])) == (failed, files)
    if not files:
        assert ("GPU100" if failed else "gpu01: not in ") in result["text"]
        assert result["restart"] == []


def test_a_host_of_the_spec_without_facts_stops_all_hosts(tmp_path: Path) -> None:
    """A slice of an inventory lacks hosts; ranges name them too."""
    spec = tmp_path / "gpustack.yaml"
    spec.write_text(SPEC.replace("gpu01:", '"gpu[01:04]":'), encoding="utf-8")
    facts = host("k4200-prepared").model_dump(mode="json", by_alias=True)
    with pytest.raises(NovaConfigError, match=r"no facts of 3 hosts of .*: gpu02, gpu03, gpu04\. No host is changed"):
        controller.overall(str(spec), {"gpu01": facts})
    (tmp_path / "slices").mkdir()
    for name, at in (("gpu02", None), ("gpu03", "2026-11-24T10:00:00Z")):
        save_snapshot(tmp_path / f"slices/{name}.json", [{**facts, "hostname": name, "collected_at": at}])
    paths = [str(tmp_path / "slices"), ""]
    with pytest.raises(NovaConfigError, match=r"no facts of 1 host of .*: gpu04"):
        controller.overall(str(spec), {"gpu01": facts}, snapshot=paths)
    decided = controller.overall(str(spec), {"gpu01": facts}, snapshot=paths, absent=["gpu04"])
    assert (sorted(decided["computes"]), decided["warnings"]) == (["gpu01", "gpu02", "gpu03"], [])
    newer = {**facts, "hostname": "gpu03", "collected_at": "2026-11-24T11:00:00Z", "memory_mib": 1}
    save_snapshot(tmp_path / "slices/later.json", [newer])
    (warning,) = controller.overall(str(spec), {"gpu01": facts}, snapshot=paths, absent=["gpu04"])["warnings"]
    assert "differ about gpu03" in warning


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An operator's home and temporary directory; whatever is written is seen in it."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/authorized_keys").write_text("ssh-ed25519 the operator\n", encoding="utf-8")
    (home / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(home / "tmp"))
    return home


def tree(directory: Path) -> dict[str, str]:
    """Every file below a directory with its text."""
    return {str(p): p.read_text(encoding="utf-8") for p in sorted(directory.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../../../../../../../..{home}/.ssh/authorized_keys",
        "/etc/nova/nova.conf.d/../../../../../../../../../..{home}/.ssh/authorized_keys",
        "/etc/nova/nova.conf.d/../nova.conf",
        "{home}/.ssh/authorized_keys",
        "{home}/.ssh/new.conf",
        "/etc/nova/nova-\0.conf",
        "/etc/nova/nova.conf\n",
        "etc/nova/nova.conf",
        "/etc/nova/sub/nova.conf",
        "/etc/kolla/nova-api/../nova-api/nova.conf",
        "",
    ],
)
@pytest.mark.parametrize("kolla", [False, True])
def test_a_hosts_answer_writes_no_file_here(tmp_path, home, path, kolla):
    before = tree(home)
    attack = {"path": path.format(home=home), "text": "ssh-ed25519 the attacker\n"}
    with pytest.raises(NovaConfigError, match=r"gpu01: unexpected answer .*\$\.files\[1\]\.path"):
        decide(tmp_path, {"files": [GOOD, attack]}, kolla=kolla)
    assert tree(home) == before


def test_a_good_answer_writes_no_file_here_either(tmp_path, home):
    before = tree(home)
    result = decide(tmp_path, {"files": [GOOD], "units": ["nova-compute.service"]})
    assert [file["path"] for file in result["write"]] == ["/etc/nova/nova.conf.d/300-gpustack.conf"]
    assert result["restart"] == [["systemctl", "restart", "nova-compute.service"]]
    assert tree(home) == before


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        "x",
        {},
        {"files": 5},
        {"files": [5]},
        {"files": [{"path": "/etc/nova/nova.conf"}]},
        {"files": [{**GOOD, "text": ["x"]}]},
        {"files": [{**GOOD, "text": "x" * (5 << 20)}]},
        {"files": [{**GOOD, "path": f"/etc/nova/nova-{n}.conf", "text": "#" * (1 << 20)} for n in range(5)]},
        {"files": [{**GOOD, "path": f"/etc/nova/nova-{n}.conf"} for n in range(100_000)]},
        {"files": [], "engine": "/bin/sh"},
        {"files": [], "started": ["x"]},
        {"files": [], "started": {"compute": [{}]}},
        {"files": [], "units": "nova-compute.service"},
        {"files": [], "pending": {"compute": 1}},
    ],
)
def test_malformed_answers_are_refused_soon(tmp_path, home, answer):
    started = time.thread_time()  # of the processor: a busy machine may take longer
    with pytest.raises(NovaConfigError, match="gpu01: unexpected answer") as raised:
        decide(tmp_path, answer)
    assert time.thread_time() - started < 5
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize("text", ["x\n", "[pci]\n\x0c\nalias\n", "[pci\n"])
def test_a_file_that_is_no_ini_names_the_host(tmp_path, home, text):
    with pytest.raises(NovaConfigError, match=r"gpu01:/etc/nova/nova\.conf:\d"):
        decide(tmp_path, {"files": [{**GOOD, "text": text}]})


def test_a_file_of_others_is_not_replaced(tmp_path, home):
    place = "/etc/nova/nova.conf.d/300-gpustack.conf"
    with pytest.raises(NovaConfigError, match=f"gpu01:{place}.*gpustack did not write this file"):
        decide(tmp_path, {"files": [GOOD, {"path": place, "text": "[pci]\n"}]})
    marked = {"path": place, "text": "# Written by gpustack: an older text\n"}
    (file,) = decide(tmp_path, {"files": [GOOD, marked]})["write"]
    assert file["path"] == place


def test_findings_name_the_hosts_own_path(tmp_path, home):
    text = '[pci]\nalias = {"name": "k4200", "vendor_id": "10de", "product_id": "1eb8"}\n'
    result = decide(tmp_path, {"files": [{**GOOD, "text": text}]}, ("api",))
    assert "gpu01:/etc/nova/nova.conf:2" in result["text"]


def test_the_path_of_vendor_data_is_advised(tmp_path, home, monkeypatch):
    path = "/etc/nova/vendordata.json"
    monkeypatch.setattr(f"{__name__}.SPEC", SPEC.replace('"2025.2"', f'"2025.2", vendordata: {path}'))
    for services in (("api",), ("compute",)):
        (file,) = decide(tmp_path, {"files": [GOOD]}, services)["write"]
        assert f"vendordata_jsonfile_path = {path}" in file["content"]


def test_the_scheduler_gets_what_the_flavors_need(tmp_path, home, monkeypatch):
    flavor = "{model: k4200, count: [1, 2], vcpus: 1, ram: 512, disk: 1, numa: {nodes: 1}}"
    monkeypatch.setattr(f"{__name__}.SPEC", f'{SPEC}flavors:\n  "g-{{count}}": {flavor}\n')
    (file,) = decide(tmp_path, {"files": [GOOD]}, ("scheduler",))["write"]
    assert "NUMATopologyFilter" in file["content"]
    assert "pci_weight_multiplier = 10\n" in file["content"]


def test_the_scheduler_gets_what_reserved_hosts_need(tmp_path, home, monkeypatch):
    monkeypatch.setattr(f"{__name__}.SPEC", f"{SPEC}tenancy: {{aggregates: {{gpu: {{projects: [a]}}}}}}\n")
    (file,) = decide(tmp_path, {"files": [GOOD]}, ("scheduler",))["write"]
    assert "AggregateMultiTenancyIsolation" in file["content"]
    assert "enable_isolated_aggregate_filtering = true\n" in file["content"]


QUOTAS = "quotas: {default: {k4200: 1}}\n"
PROVIDERS = "/etc/nova/provider_config/gpustack.yaml"


def test_a_host_with_quotas_gets_its_markers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.SPEC", SPEC + QUOTAS)
    first = decide(tmp_path, {"files": [GOOD], "units": ["nova-compute.service"]})
    (drop_in, markers) = first["write"]
    assert (markers["path"], markers["mode"]) == (PROVIDERS, "0644")
    assert "CUSTOM_GPU_QUOTA_K4200" in markers["content"]
    assert "GPU752" not in str(first)
    there = {"path": "/etc/nova/nova.conf.d/300-gpustack.conf", "text": drop_in["content"]}
    settled = {"files": [GOOD, there, {"path": PROVIDERS, "text": markers["content"]}]}
    assert decide(tmp_path, settled)["services"] == []
    other = {"files": [GOOD, there, {"path": PROVIDERS, "text": markers["content"].replace("total: ", "total: 1")}]}
    assert decide(tmp_path, other)["services"] == ["compute"]


def test_only_hosts_with_quotas_and_nova_compute_get_markers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PROVIDERS not in str(decide(tmp_path, {"files": [GOOD]}))
    monkeypatch.setattr(f"{__name__}.SPEC", SPEC + QUOTAS)
    assert PROVIDERS not in str(decide(tmp_path, {"files": [GOOD]}, services=("api",)))
    of_kolla = {"files": [{"path": "/etc/kolla/nova-compute/nova.conf", "text": "[pci]\n"}], "engine": "docker"}
    outcome = decide(tmp_path, of_kolla, kolla=True)
    assert outcome["write"] == []
    assert "GPU752" in str(outcome)


@pytest.mark.parametrize("names", [["nova-conductor"], ["nova-conductor", "nova-super-conductor"]])
def test_each_conductor_of_kolla_ansible_gets_its_block(tmp_path: Path, names: list[str]) -> None:
    """The one above the cells makes the requests for devices, and it is not on every host."""
    files = [{"path": f"/etc/kolla/{name}/nova.conf", "text": "[DEFAULT]\n"} for name in names]
    spec = SPEC.replace('"2025.2"', '"2025.2", placement: schedule')
    outcome = decide(tmp_path, {"files": files}, services=("conductor",), text=spec, kolla=True)
    assert [block["path"] for block in outcome["blocks"]] == [file["path"] for file in files]
    assert all("pci_in_placement = true" in block["text"] for block in outcome["blocks"])
    assert outcome["restart"] == [["docker", "restart", name.replace("-", "_")] for name in names]


def of_vgpus(tmp_path: Path, answer: object, name: str = "one type on two cards", **more: Any) -> dict[str, Any]:
    """The files of a host with mediated devices; two models share a class, so that its providers have traits."""
    case = json.loads(json.dumps(CASES[name]).replace("CUSTOM_A", "VGPU"))
    models = {**case["models"], "other": {"match": {"vendor": "10de", "product": "20b5"}, "vgpu": {"type": "A100-4C"}}}
    spec = {"version": 1, "models": models, "hosts": {"gpu01": ["a"]}, "nova": {"release": case["release"]}}
    path = tmp_path / "gpustack.yaml"
    path.write_text(json.dumps(spec), encoding="utf-8")
    facts = host_of(case).model_dump(mode="json", by_alias=True)
    decided = json.loads(json.dumps(controller.overall(str(path), {"gpu01": facts})))
    return controller.for_host(
        str(path), decided, "gpu01", services=("compute",), facts=facts, module_answer=answer, **more
    )


def test_a_host_with_mediated_devices_gets_types_and_traits(tmp_path: Path) -> None:
    first = of_vgpus(tmp_path, {"files": [GOOD], "units": ["nova-compute.service"]})
    drop_in, traits = first["write"]
    assert "[mdev_nvidia-711]\ndevice_addresses = 0000:41:00.0,0000:42:00.0\n" in drop_in["content"]
    assert "name: gpu01_pci_0000_41_00_0\n" in traits["content"]
    assert "- CUSTOM_GPU_MODEL_A\n" in traits["content"]
    there = [GOOD, {"path": "/etc/nova/nova.conf.d/300-gpustack.conf", "text": drop_in["content"]}]
    settled = {"files": [*there, {"path": PROVIDERS, "text": traits["content"]}]}
    assert of_vgpus(tmp_path, settled)["services"] == []
    there[1]["text"] = there[1]["text"].replace(",0000:42:00.0", "")
    changed = {"files": [*there, {"path": PROVIDERS, "text": traits["content"]}]}
    assert of_vgpus(tmp_path, changed)["services"] == ["compute"]
    of_kolla = {"files": [{"path": "/etc/kolla/nova-compute/nova.conf", "text": "[pci]\n"}], "engine": "docker"}
    outcome = of_vgpus(tmp_path, of_kolla, kolla=True)
    assert "[mdev_nvidia-711]" in outcome["blocks"][0]["text"]
    assert "GPU752" in str(outcome)


def test_a_host_whose_devices_would_lose_their_type_keeps_its_files(tmp_path: Path) -> None:
    refused = of_vgpus(tmp_path, {"files": [GOOD]}, "a device of an instance with another type")
    assert (refused["failed"], refused["write"]) == (True, [])
    assert "instance 5ae5d3a1" in refused["msg"]
