"""``gpustack cleanup explain``: one screen about one GPU or instance, in any state."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.cli.app import main
from support.cellfile import CellFile, ago, nova_conf

GPU = "0000:81:00.0"
VM = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """An evacuated instance whose old host stays away, and a row of it that somebody soft-deleted."""
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    node = cell.host("gpu1")
    cell.host("gpu2", seen=5)
    cell.instance(VM, "gpu2")
    cell.move(VM, "gpu1", "gpu2", "done")
    cell.device(node, GPU, "allocated", instance_uuid=VM, request_id="x")
    cell.device(node, GPU, "available", deleted=71, deleted_at=ago())
    return nova_conf(tmp_path, {"cell1": cell.url})


def explanation(capsys: pytest.CaptureFixture[str], conf: Path, *arguments: str) -> str:
    assert main(["cleanup", "explain", *arguments, "--config-file", str(conf), "--no-hypervisor"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("arguments", [("gpu1", GPU), ("gpu1", "81:00.0"), (VM,), (VM.upper(),)])
def test_everything_about_a_gpu_or_an_instance(
    arguments: tuple[str, ...], conf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = explanation(capsys, conf, *arguments)
    assert f"{GPU} (10de:11b4), type-PCI, is 'allocated', owner {VM}, request x" in out
    assert f"instance {VM}: active, task none, on gpu2 (gpu2)" in out
    assert f"requests of {VM}: 1 of k4200 (r1)" in out
    assert f"of {VM} (migration, gpu1 to gpu2): done" in out
    assert "nova-compute on gpu1, last seen" in out
    assert "hypervisor of gpu1\n  could not be asked" in out
    assert "Placement\n  not asked" in out
    assert "class A (left-behind), stale" in out
    assert ("is 'available', no owner" in out) == (len(arguments) == 2)
    assert len(out.splitlines()) < 40


@pytest.mark.parametrize("arguments", [("gpu1", "0000:99:00.0"), ("gpu9", GPU), (VM.replace("1", "9"),)])
def test_nothing_is_known(arguments: tuple[str, ...], conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = explanation(capsys, conf, *arguments)
    assert "no row of pci_devices" in out
    assert "verdicts\n  none" in out


def test_values_that_nova_does_not_write_are_shown_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    cell.instance(VM, "gpu1", updated_at=None)
    cell.device(cell.host("gpu1"), GPU, "free", instance_uuid=VM.upper())
    with cell.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE pci_devices SET updated_at = '0000-00-00 00:00:00'")
        connection.exec_driver_sql("UPDATE instance_extra SET pci_requests = '[{'")
    out = explanation(capsys, nova_conf(tmp_path, {"cell1": cell.url}), "gpu1", GPU)
    assert "is 'free'" in out
    assert "not readable: '[{'" in out
    assert "class U (unknown-value), report" in out


@pytest.mark.parametrize("arguments", [("gpu1",), ("gpu1", "81"), (VM, GPU, "x")])
def test_neither_a_gpu_nor_an_instance(arguments: tuple[str, ...], conf: Path) -> None:
    assert main(["cleanup", "explain", *arguments, "--config-file", str(conf)]) == 2
