"""``gpustack health``: from snapshots, with and without a baseline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpustack.hosts.facts.store import save_snapshot
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
            function["aer"] = {"correctable": 0, "nonfatal": 0, "fatal": count}
        save_snapshot(path, [facts])
    return paths


def test_a_failing_gpu_has_a_finding_and_an_exit_code(snapshots: tuple[Path, Path], gpustack: Any) -> None:
    baseline, now = snapshots
    ran = gpustack("health", "--snapshot", now, "--baseline", baseline, "--exit-code")
    assert ran.code == 3
    assert "GPU767" in ran.out
    assert "uncorrected errors: 1 fatal at 0000:88:00.0" in ran.err
    assert "gpustack gpu disable gpu01 0000:88:00.0" in ran.err
    assert gpustack("health", "--snapshot", baseline, "--exit-code").code == 0
    assert gpustack("health", "--snapshot", now, "--baseline", now, "--exit-code").code == 0


def test_formats_for_programs(snapshots: tuple[Path, Path], gpustack: Any) -> None:
    _, now = snapshots
    gpus = json.loads(gpustack("health", "--snapshot", now, "-f", "json").out)
    assert {gpu["address"]: (gpu["fatal"], [entry["code"] for entry in gpu["findings"]]) for gpu in gpus} == {
        "0000:84:00.0": (0, []),
        CARD: (1, ["GPU767"]),
    }
    for form in ("yaml", "csv", "value"):
        assert gpustack("health", "--snapshot", now, "-f", form).code == 0


def test_a_host_without_baseline_is_reported(snapshots: tuple[Path, Path], gpustack: Any, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    save_snapshot(other, [{**raw("k4200"), "hostname": "gpu09"}])
    ran = gpustack("health", "--snapshot", snapshots[1], "--baseline", other)
    assert (ran.code, "gpu01: not in" in ran.err) == (0, True)
