"""``gpustack health``: from snapshots, with and without a baseline."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.errors import CloudError
from gpustack.cli.cloud import OpenStackCommand
from gpustack.hosts.facts.store import save_snapshot
from support.fleet_answers import device
from support.fleet_cloud import StandIn, instance, servers, with_devices
from support.nova_hosts import raw

CARD = "0000:88:00.0"


@pytest.fixture
def snapshots(tmp_path: Path) -> tuple[Path, Path]:
    """A baseline, and the same host with a fatal error."""
    facts = raw("k4200-prepared")
    facts["kernel"] |= {"log": [], "booted_at": 7}
    paths = (tmp_path / "baseline.json", tmp_path / "now.json")
    for path, fatal in zip(paths, (0, 1), strict=True):
        for function in facts["pci"]:
            count = fatal if function["address"] == CARD else 0
            function["responds"] = True
            function["aer"] = {"correctable": 0, "nonfatal": 0, "fatal": count}
        save_snapshot(path, [facts])
    return paths


def test_a_failing_gpu_has_a_finding_and_an_exit_code(snapshots: tuple[Path, Path], gpustack: Any) -> None:
    baseline, now = snapshots
    ran = gpustack("health", "--snapshot", now, "--baseline", baseline, "--exit-code")
    assert ran.code == 3
    assert "GPU767" in ran.out
    assert "uncorrected errors: 1 fatal at 0000:88:00.0" in ran.err
    assert f"gpustack gpu disable --snapshot {now} gpu01 0000:88:00.0 --reason 'AER errors'`" in ran.err
    assert gpustack("health", "--snapshot", baseline, "--exit-code").code == 0
    assert gpustack("health", "--snapshot", now, "--baseline", now, "--exit-code").code == 0


def test_a_gpu_whose_facts_lack_the_signs_is_not_ok(
    snapshots: tuple[Path, Path], gpustack: Any, tmp_path: Path
) -> None:
    without_root = json.loads(snapshots[0].read_text())
    without_root["hosts"][0]["kernel"]["log"] = None
    path = tmp_path / "without-root.json"
    path.write_text(json.dumps(without_root))
    ran = gpustack("health", "--snapshot", path)
    assert re.findall(r" (ok|unknown) ", ran.out) == ["unknown", "unknown"]
    assert "GPU772" in ran.err


def test_formats_for_programs(snapshots: tuple[Path, Path], gpustack: Any) -> None:
    _, now = snapshots
    gpus = json.loads(gpustack("health", "--snapshot", now, "-f", "json").out)
    assert {gpu["address"]: (gpu["fatal"], [entry["code"] for entry in gpu["findings"]]) for gpu in gpus} == {
        "0000:84:00.0": (0, []),
        CARD: (1, ["GPU767"]),
    }
    for form in ("yaml", "csv", "value"):
        assert gpustack("health", "--snapshot", now, "-f", form).code == 0


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A Placement with both cards of the host, one of them with an instance."""
    ids = {"resource_class": "CUSTOM_PCI_10DE_11B4"}
    devices = [device("gpu01", 0x84, **ids), device("gpu01", 0x88, used=1, **ids)]
    stand_in = with_devices(devices, {"vm1": {"gpu01-88": 1}})
    stand_in.answers["compute /servers/detail?all_tenants=1"] = servers(instance("vm1", "gpu01"))
    monkeypatch.setattr(OpenStackCommand, "connection", lambda *arguments, **options: stand_in)
    return stand_in


def test_the_instances_of_a_failing_gpu(snapshots: tuple[Path, Path], gpustack: Any, cloud: StandIn) -> None:
    ran = gpustack("health", "--snapshot", snapshots[1], "--instances", "--exit-code")
    assert ran.code == 3, ran
    assert [line.split("|")[4:7] for line in ran.out.splitlines() if CARD in line] == [
        [" GPU767 ", " allocated ", " VM1       "]
    ], ran.out
    gpus = json.loads(gpustack("health", "--snapshot", snapshots[1], "--instances", "-f", "json").out)
    assert [(gpu["units"], gpu["used"], [one["server"] for one in gpu["holders"]]) for gpu in gpus] == [
        (1, 0, []),
        (1, 1, ["vm1"]),
    ]
    assert "placement /resource_providers" in " ".join(cloud.requests)


def test_without_a_host_nothing_is_asked(snapshots: tuple[Path, Path], gpustack: Any, cloud: StandIn) -> None:
    ran = gpustack("health", "absent", "--snapshot", snapshots[1], "--instances")
    assert (ran.code, cloud.requests) == (12, []), ran


def test_without_the_option_no_cloud_is_asked(snapshots: tuple[Path, Path], gpustack: Any, cloud: StandIn) -> None:
    ran = gpustack("health", "--snapshot", snapshots[1], "-f", "json")
    assert (ran.code, cloud.requests) == (0, [])
    assert {(gpu["units"], gpu["used"], gpu["holders"]) for gpu in json.loads(ran.out)} == {(None, None, None)}


def test_a_part_of_the_cloud_that_refuses_is_named(snapshots: tuple[Path, Path], gpustack: Any, cloud: StandIn) -> None:
    cloud.answers["compute /os-services"] = (403, {"forbidden": {"message": "no"}})
    ran = gpustack("health", "--snapshot", snapshots[1], "--instances")
    assert (ran.code, "GPU767" in ran.out, "VM1" in ran.out) == (23, True, True)
    assert "partial: Nova: " in ran.err
    assert "the comparison with Nova and Placement is partial" in ran.err


def test_gpus_that_nova_knows_by_number_only_are_explained(
    snapshots: tuple[Path, Path], gpustack: Any, cloud: StandIn
) -> None:
    cloud.answers["placement /resource_providers"] = (200, {"resource_providers": []})
    cloud.answers["placement /resource_providers?"] = (200, {"resource_providers": []})
    cloud.answers["placement /allocation_candidates"] = (200, {"provider_summaries": {}})
    ran = gpustack("health", "--snapshot", snapshots[1], "--instances")
    assert "--config-file reads each GPU" in ran.err, ran


def test_a_cloud_that_refuses_everything_does_not_hide_the_signs(
    snapshots: tuple[Path, Path], gpustack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = CloudError("the cloud is away", remedy="try again")

    def connect(*_arguments: object) -> None:
        raise refusal

    monkeypatch.setattr(OpenStackCommand, "connection", connect)
    ran = gpustack("health", "--snapshot", snapshots[1], "--instances")
    assert (ran.code, "GPU767" in ran.out) == (refusal.exit_code, True)
    assert "the cloud is away" in ran.err


def test_a_host_without_baseline_is_reported(snapshots: tuple[Path, Path], gpustack: Any, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    save_snapshot(other, [{**raw("k4200"), "hostname": "gpu09"}])
    ran = gpustack("health", "--snapshot", snapshots[1], "--baseline", other)
    assert (ran.code, "gpu01: not in" in ran.err) == (0, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--kernel-log", "-", "--instances"),
        ("--kernel-log", "-", "--baseline", "FILE"),
        ("--snapshot", "FILE", "--spec", "gpustack.yaml"),
        ("--snapshot", "FILE", "--config-file", "nova.conf"),
    ],
)
def test_an_option_without_effect_is_refused(
    arguments: tuple[str, ...], snapshots: tuple[Path, Path], gpustack: Any
) -> None:
    ran = gpustack("health", *(str(snapshots[1]) if word == "FILE" else word for word in arguments))
    assert (ran.code, ran.out) == (2, "")
    assert "omit" in ran.err


def test_a_sign_counts_at_any_place_of_a_long_log(tmp_path: Path, gpustack: Any) -> None:
    log = tmp_path / "kern.log"
    xid = "Aug  9 10:00:00 gpu01 kernel: [   71.1] NVRM: Xid (PCI:0000:88:00): 79, pid=0, GPU has fallen off the bus.\n"
    noise = "Aug  9 10:00:00 gpu01 kernel: [   71.1] usb 1-1: new high-speed USB device number 2 using xhci_hcd\n"
    log.write_text(xid + noise * 100_000)
    assert "GPU915" in gpustack("health", "--kernel-log", str(log)).err


def test_a_log_without_signs_says_so(tmp_path: Path, gpustack: Any) -> None:
    log = tmp_path / "kernel.log"
    start = "[    0.000000] Linux version 6.8.0 (x) #1\n"
    log.write_text(f"{start}[    0.1] pci 0000:00:05.0: [10de:2330] type 00 class 0x030200\n")
    ran = gpustack("health", "--kernel-log", str(log))
    assert (ran.code, ran.out, ran.err) == (0, "", "no signs in the log\n")
