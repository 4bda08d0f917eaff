"""Counts of verdicts for Prometheus."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.base.errors import CloudError
from gpustack.novadb.sources import Sources
from gpustack.repair import metrics, plan
from gpustack.repair.plan import CleanupPlan, Selection
from support.cellfile import CellFile
from support.prometheus_programs import check_metrics


def test_promtool_accepts_the_counts(tmp_path: Path) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    cell.device(cell.host("gpu1"), "0000:82:00.0", "allocated", instance_uuid="gone", request_id="x")
    path = tmp_path / "gpustack.prom"
    metrics.write(path, plan.make(Sources.from_url(cell.url), Selection()))
    text = path.read_text(encoding="utf-8")
    check_metrics(text)
    verdicts = [line for line in text.splitlines() if line.startswith("gpustack_cleanup_verdicts{")]
    assert sorted({line.rpartition(" ")[2] for line in verdicts}) == ["0.0", "1.0"]
    assert "gpustack_cleanup_up 1.0" in text


@pytest.mark.parametrize(
    ("unread", "unasked", "up"),
    [
        ((), None, "1.0"),
        ((("cell2", "refused"),), None, "0.0"),
        ((), CloudError("silent"), "0.0"),
        ((("cell2", "refused"),), CloudError("silent"), "0.0"),
    ],
)
def test_what_was_left_out_is_no_success(
    tmp_path: Path, unread: tuple[tuple[str, str], ...], unasked: CloudError | None, up: str
) -> None:
    path = tmp_path / "gpustack.prom"
    metrics.write(path, CleanupPlan(verdicts=(), unread=unread, unasked=unasked))
    assert f"gpustack_cleanup_up {up}" in path.read_text(encoding="utf-8")


def test_promtool_accepts_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "gpustack.prom"
    metrics.write_failure(path)
    check_metrics(path.read_text(encoding="utf-8"))
    assert "gpustack_cleanup_up 0.0" in path.read_text(encoding="utf-8")
    assert "gpustack_cleanup_verdicts" not in path.read_text(encoding="utf-8")
