"""Every command of the runbook, run against a cell that has the case of its page."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from gpustack.cli.app import main
from gpustack.novadb.sources import Sources
from gpustack.repair.classes import CLASSES
from gpustack.repair.hypervisor import Hypervisors
from support.cellfile import CellFile, ago, answering, nova_conf
from support.sysroot import SysRoot

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs" / "runbook").glob("*.md"))
COMMAND = re.compile(r"^\$ (.+)$", re.MULTILINE)
GPU = "0000:81:00.0"


def _moved(cell: CellFile, age: float = 864000) -> str:
    cell.device(cell.host("gpu01", seen=age), GPU, "allocated", instance_uuid="vm", request_id="x")
    return cell.instance("vm", "elsewhere")


def _pinned(cell: CellFile) -> None:
    cell.move(_moved(cell), "gpu01", "elsewhere", "error")


def _orphan(cell: CellFile) -> None:
    cell.device(cell.host("gpu01", deleted=True), GPU, "allocated", instance_uuid="vm", request_id="x")
    cell.instance("vm", "elsewhere")


def _soft_deleted(cell: CellFile) -> None:
    row = {"instance_uuid": "vm", "deleted": 5, "deleted_at": ago()}
    cell.device(cell.host("gpu01"), GPU, "allocated", **row)
    cell.instance("vm", "elsewhere")


def _ghost(cell: CellFile) -> None:
    cell.device(cell.host("gpu01"), GPU, "allocated", instance_uuid="gone")


def _surplus(cell: CellFile) -> None:
    node = cell.host("gpu01")
    cell.device(node, GPU, "allocated", instance_uuid=cell.instance("vm", "gpu01"), request_id="r1")
    cell.device(node, "0000:82:00.0", "allocated", instance_uuid="vm", request_id="x")


def _claim(cell: CellFile) -> None:
    node = cell.host("gpu01")
    cell.device(node, GPU, "allocated", instance_uuid=cell.instance("vm", "gpu01"), request_id="r1")
    cell.device(node, "0000:82:00.0", "claimed", instance_uuid="vm", request_id="x")


def _blocked(cell: CellFile) -> None:
    cell.device(cell.host("gpu01"), GPU, "unavailable")


def _unblocked_parent(cell: CellFile) -> None:
    node = cell.host("gpu01")
    cell.device(node, GPU, dev_type="type-PF")
    virtual = {"dev_type": "type-VF", "parent_addr": GPU, "instance_uuid": cell.instance("vm", "gpu01")}
    cell.device(node, "0000:81:00.1", "allocated", request_id="r1", **virtual)


def _owner_on_free(cell: CellFile) -> None:
    node = cell.host("gpu01")
    cell.device(node, GPU, "allocated", instance_uuid=cell.instance("vm", "gpu01"), request_id="r1")
    cell.device(node, "0000:82:00.0", "available", instance_uuid="vm")


def _removed(cell: CellFile) -> None:
    cell.device(cell.host("gpu01", seen=0), GPU, "removed")


def _missing(cell: CellFile) -> None:
    cell.device(cell.host("gpu01"), GPU)
    cell.instance("vm", "gpu01")


def _renamed(cell: CellFile) -> None:
    cell.device(cell.host("gpu01"), GPU, "allocated", instance_uuid="vm", request_id="r1")
    cell.instance("vm", "gpu01", node="gpu01.example.com")


def _pools(cell: CellFile) -> None:
    cell.device(cell.host("gpu01", seen=0), GPU)


def _drifted(cell: CellFile) -> None:
    """The host has a card at another address than the row's."""
    cell.device(cell.host("gpu01", seen=0), GPU, updated_at=ago(), created_at=ago())


def _stuck(cell: CellFile) -> None:
    """A power cut of elsewhere in the middle of a copy to gpu01, after which Nova cleared the task."""
    cell.move(_moved(cell, age=0), "elsewhere", "gpu01", "migrating", updated_at=ago(7200))
    cell.host("elsewhere", seen=0)
    with cell.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE instances SET updated_at = datetime('now', '-2 hours')")


def _unused(cell: CellFile) -> None:
    """No domain of the host has a device."""
    cell.device(cell.host("gpu01"), GPU, "allocated", instance_uuid="vm", request_id="r1")
    cell.instance("vm", "gpu01")


def _made_up(cell: CellFile) -> None:
    cell.device(cell.host("gpu01"), GPU, "free")


def _periodic(cell: CellFile) -> None:
    _moved(cell, age=0)


CASES: dict[str, tuple[Callable[[CellFile], object], str]] = {
    "index": (_moved, "stale"),
    "class-a": (_moved, "stale"),
    "class-b": (_pinned, "stale"),
    "class-c": (_orphan, "stale"),
    "class-d": (_soft_deleted, "stale"),
    "class-e": (_ghost, "stale"),
    "class-f": (_surplus, "stale"),
    "class-g": (_claim, "stale"),
    "class-h": (_blocked, "stale"),
    "class-i": (_unblocked_parent, "stale"),
    "class-j": (_owner_on_free, "stale"),
    "class-k": (_removed, "restart"),
    "class-l": (_missing, "report"),
    "class-m": (_moved, "nothing"),
    "class-n": (_renamed, "report"),
    "class-o": (_drifted, "report"),
    "class-p": (_pools, "restart"),
    "class-q": (_moved, "nothing"),
    "class-s": (_moved, "nothing"),
    "class-r": (_periodic, "report"),
    "class-t": (_unused, "report"),
    "class-u": (_made_up, "report"),
    "migration-never-ended": (_stuck, "report"),
    "row-freed-by-hand": (_missing, "report"),
}


def test_there_is_a_page_for_every_class_and_a_case_for_every_page() -> None:
    assert {page.stem for page in PAGES} == set(CASES)
    assert {f"class-{letter.lower()}" for letter in CLASSES} == {page for page in CASES if page.startswith("class-")}


# The commands of classes Q and S need a Placement: tests/nova/cleanup/test_placement.py runs them.
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem not in ("class-q", "class-s")], ids=lambda page: page.stem
)
def test_the_commands_of_a_page(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seed, kind = CASES[page.stem]
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    seed(cell)
    conf = nova_conf(tmp_path, {"cell1": cell.url})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    answer = answering(Sources.from_nova_conf([conf]))
    monkeypatch.setattr(Hypervisors, "ask", lambda _self, host: answer(host))  # no host can be reached here
    (tmp_path / "nova-compute.conf").write_text('[pci]\ndevice_spec = {"vendor_id": "10de", "product_id": "11b4"}\n')
    before, repaired, codes = cell.dump(), False, []
    for line in COMMAND.findall(page.read_text(encoding="utf-8")):
        argv = shlex.split(line)
        if argv[0] == "ansible-playbook":
            assert '"$(gpustack playbook path cleanup)"' in line
            assert (ROOT / "playbooks" / "cleanup.yml").is_file()
            continue
        if argv[:2] == ["gpustack", "scan"]:
            root = SysRoot(tmp_path / "host").host(name="gpu01").function("0000:82:00.0", vendor="10de", product="11b4")
            (name,) = [argument for argument in argv[2:] if argument == "gpu01"]  # its own root stands for the host
            assert main([*(argument for argument in argv[1:] if argument != name), "--root", str(root.path)]) == 0
            continue
        assert argv[:2] == ["gpustack", "cleanup"], line
        action, options = argv[2], argv[3:]
        more = ["--config-file", str(conf)]
        script = "--sql" in options
        if action == "apply" and not script:
            more += ["--yes", "--wait", "0"]
        more += ["--yes"] if action == "undo" else []
        after = repaired and action == "plan"
        unchanged = cell.dump()
        code = main([*argv[1:], *more])
        output = capsys.readouterr()
        assert "unexpected" not in output.err
        codes.append((action, code))
        if action == "plan":
            assert code == 0, (line, output)
            assert ("No stale rows" in output.out) == (after or kind == "nothing"), (line, output)
            assert cell.dump() == unchanged
            assert ("Next: gpustack cleanup apply" in output.err) == ("| stale" in output.out), (line, output)
        elif script:
            assert code == 0, (line, output)
            assert cell.dump() == unchanged
        elif action == "apply":
            assert code == 0, (line, output)
            repaired = True
            assert cell.dump() != before, (line, output)
        elif action == "undo" and page.stem == "class-i":
            assert code == 14, "the virtual function is still taken"
            assert cell.dump() == unchanged
        elif action == "undo":
            assert code == 0, (line, output)
            assert (" done" in output.err) == repaired, (line, output)
            assert cell.dump() == before
        elif action == "watch":
            assert code == 0
            assert 'class="A",status="stale"} 1' in (tmp_path / "gpustack.prom").read_text()
    assert codes


def test_apply_asks_before_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    _moved(cell)
    conf = nova_conf(tmp_path, {"cell1": cell.url})
    before = cell.dump()
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert main(["cleanup", "apply", "--config-file", str(conf)]) == 2
    assert "no terminal for confirmation" in capsys.readouterr().err
    assert main(["cleanup", "apply", "--config-file", str(conf), "--dry-run"]) == 0
    assert cell.dump() == before
