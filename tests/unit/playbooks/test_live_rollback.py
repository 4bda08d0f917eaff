"""The module gpustack_bind when a step fails: what was moved is restored, and the result names the rest.

The kernel is a stand-in: it answers the writes of the module's processes on a small sysfs tree, in the way of
``Documentation/ABI/testing/sysfs-bus-pci``, and fails the writes that a test selects.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from gpustack.base.files import collection_dir
from gpustack.hosts.facts import collector

AUDIO, CARD = "0000:88:00.1", "0000:88:00.0"
HOST_DRIVERS = {AUDIO: "snd_hda_intel", CARD: "nouveau"}
Failure = Callable[[], int]


def refuse() -> int:
    return 1


def no_process() -> int:
    raise OSError(11, "Resource temporarily unavailable")


def hang() -> int:
    raise subprocess.TimeoutExpired("write", 1)


class Kernel:
    """The PCI bus below a root.

    :ivar writes: the writes so far, as ``ADDRESS FILE TEXT``.
    :ivar fails: the failure for each write that has one, by its number or by its text.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bus = root / "sys/bus/pci"
        self.writes: list[str] = []
        self.fails: dict[int | str, Failure] = {}
        for driver in ("vfio-pci", *HOST_DRIVERS.values()):
            (self.bus / "drivers" / driver).mkdir(parents=True)
        for address, driver in HOST_DRIVERS.items():
            (self.bus / "devices" / address).mkdir(parents=True)
            self.override(address, "(null)")
            self.link(address, driver)

    def override(self, address: str, driver: str) -> None:
        (self.bus / "devices" / address / "driver_override").write_text(driver + "\n", encoding="utf-8")

    def link(self, address: str, driver: str | None) -> None:
        path = self.bus / "devices" / address / "driver"
        path.unlink(missing_ok=True)
        if driver is not None:
            path.symlink_to(f"../../drivers/{driver}")

    def state(self) -> dict[str, tuple[str | None, str]]:
        """Driver and driver_override of each function."""
        directories = {address: self.bus / "devices" / address for address in HOST_DRIVERS}
        return {
            address: (
                (path / "driver").readlink().name if (path / "driver").is_symlink() else None,
                (path / "driver_override").read_text(encoding="utf-8").strip(),
            )
            for address, path in directories.items()
        }

    def process(self, command: list[str], **_: Any) -> SimpleNamespace:
        """Replace ``Popen``: the effect of a write, or its failure."""
        path, text = Path(command[-2]), command[-1].strip()
        address = path.parent.name if path.name == "driver_override" else text
        line = f"{address} {path.name} {text}".strip()
        failure = self.fails.get(len(self.writes)) or self.fails.get(line)
        self.writes.append(line)
        if failure is no_process:
            no_process()
        if failure is None:
            self._write(path, address, text)
        return SimpleNamespace(pid=4242, wait=lambda _: failure() if failure else 0)

    def _write(self, path: Path, address: str, text: str) -> None:
        driver, override = self.state()[address]
        if path.name == "driver_override":
            self.override(address, text or "(null)")
        elif path.name == "unbind":
            assert path.parent.name == driver
            self.link(address, None)
        elif driver is None:
            self.link(address, HOST_DRIVERS[address] if override == "(null)" else override)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


@pytest.fixture
def live(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, on that kernel."""
    utilities = "ansible_collections.nova_gpustack.passthrough.plugins.module_utils"
    monkeypatch.setitem(sys.modules, f"{utilities}.gpustack_collector", collector)
    path = collection_dir() / "plugins/modules/gpustack_bind.py"
    spec = importlib.util.spec_from_file_location("gpustack_bind", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    processes = {"DEVNULL": subprocess.DEVNULL, "TimeoutExpired": subprocess.TimeoutExpired}
    monkeypatch.setattr(module, "subprocess", SimpleNamespace(Popen=kernel.process, **processes))
    monkeypatch.setattr(module, "collect", lambda _: {"pci": [_entry(a, kernel.state()[a][0]) for a in HOST_DRIVERS]})
    return module


def _entry(address: str, driver: str | None) -> dict[str, Any]:
    return {"address": address, "driver": driver, "vendor": "10de", "product": "11b4", "class": "0", "holders": []}


def card(kernel: Kernel, *addresses: str, driver: str = "vfio-pci") -> dict[str, Any]:
    before = {address: state[0] for address, state in kernel.state().items()}
    ids = {"vendor": "10de", "product": "11b4", "pci_class": "0"}
    functions = [{"address": address, "before": before[address], **ids} for address in addresses]
    return {"card": addresses[-1], "driver": driver, "functions": functions}


def run(
    live: ModuleType, kernel: Kernel, capsys: pytest.CaptureFixture[str], *cards: dict[str, Any], **options: Any
) -> dict[str, Any]:
    """Run the module by its real entry, and return its result."""
    arguments = {"root": str(kernel.root), "timeout": 0, "cards": cards or [card(kernel, AUDIO, CARD)], **options}
    with patch_module_args(arguments), pytest.raises(SystemExit):
        live.main()
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


FIRST_STATES = {
    "host drivers": {},
    "unbound": {AUDIO: (None, "(null)")},
    "unbound by an override": {AUDIO: (None, "none")},
    "an override that is not in effect": {AUDIO: ("snd_hda_intel", "other"), CARD: ("nouveau", "nouveau")},
}


@pytest.mark.parametrize("failure", [refuse, no_process])
@pytest.mark.parametrize("states", FIRST_STATES.values(), ids=FIRST_STATES)
def test_a_failure_at_any_write_restores_everything(
    live: ModuleType,
    kernel: Kernel,
    capsys: pytest.CaptureFixture[str],
    failure: Failure,
    states: dict[str, tuple[str | None, str]],
) -> None:
    def reset() -> None:
        for address, (driver, override) in ({a: (d, "(null)") for a, d in HOST_DRIVERS.items()} | states).items():
            kernel.link(address, driver)
            kernel.override(address, override)

    reset()
    before = kernel.state()
    assert run(live, kernel, capsys)["bound"] == [AUDIO, CARD]
    assert set(kernel.state().values()) == {("vfio-pci", "vfio-pci")}
    count = len(kernel.writes)
    assert count >= 5
    states_after, results = [], []
    for number in range(count):
        reset()
        kernel.writes.clear()
        kernel.fails = {number: failure}
        results.append(run(live, kernel, capsys))
        states_after.append(kernel.state())
    assert states_after == [before] * count
    for result in results:
        assert result["failed"]
        assert (result["changed"], result["bound"], result["not_restored"]) == (False, [], [])
        assert f"Restored: {', '.join(result['restored'])}" in result["msg"]


def test_an_unreadable_driver_restores_the_earlier_functions(
    live: ModuleType, kernel: Kernel, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``readlink`` fails on the second function, after the first was moved."""
    functions, facts = card(kernel, AUDIO, CARD), live.collect("")
    monkeypatch.setattr(live, "collect", lambda _: facts)
    kernel.link(CARD, None)
    (kernel.bus / "devices" / CARD / "driver").touch()
    result = run(live, kernel, capsys, functions)
    assert "Invalid argument" in result["msg"]
    assert f"{AUDIO} unbind {AUDIO}" in kernel.writes
    assert kernel.state()[AUDIO] == ("snd_hda_intel", "(null)")


def test_a_function_that_stays_behind_does_not_keep_the_others(
    live: ModuleType, kernel: Kernel, capsys: pytest.CaptureFixture[str]
) -> None:
    """The display takes neither driver; its override is restored all the same, and then the audio function."""
    kernel.fails = {f"{CARD} drivers_probe {CARD}": refuse}
    result = run(live, kernel, capsys)
    assert kernel.state() == {AUDIO: ("snd_hda_intel", "(null)"), CARD: (None, "(null)")}
    assert (result["restored"], result["not_restored"], result["changed"]) == ([AUDIO], [CARD], True)
    assert f"Not restored: {CARD} (expected driver nouveau, driver_override none): giving {CARD}" in result["msg"]
    assert "Reboot the host" in result["msg"]
    kernel.fails = {}
    kernel.link(CARD, "nouveau")
    assert run(live, kernel, capsys)["bound"] == [AUDIO, CARD]


def test_nothing_is_written_after_a_write_that_hangs(
    live: ModuleType, kernel: Kernel, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel.fails = {f"{CARD} unbind {CARD}": hang}
    result = run(live, kernel, capsys)
    assert kernel.writes[-1] == f"{CARD} unbind {CARD}"
    assert (result["restored"], result["not_restored"], result["changed"]) == ([], [CARD, AUDIO], True)
    assert f"{AUDIO} (expected driver snd_hda_intel, driver_override none): not attempted" in result["msg"]


def test_a_hang_while_restoring_ends_the_writes(
    live: ModuleType, kernel: Kernel, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel.fails = {f"{CARD} unbind {CARD}": refuse, f"{CARD} driver_override": hang}
    result = run(live, kernel, capsys)
    assert kernel.writes[-1] == f"{CARD} driver_override"
    assert result["not_restored"] == [CARD, AUDIO]
    assert "process 4242" in result["msg"]


def test_a_function_that_stays_behind_is_in_the_record(
    live: ModuleType, kernel: Kernel, capsys: pytest.CaptureFixture[str]
) -> None:
    """``undo`` knows from the record that gpustack set the override, and not libvirt."""
    kernel.fails = {f"{CARD} unbind {CARD}": hang}
    run(live, kernel, capsys)
    record = (kernel.root / "run/gpustack/devices").read_text(encoding="utf-8")
    assert f"{AUDIO} is kept for vfio-pci\n" in record


@pytest.mark.parametrize("prefix", ["/bin/false", "/nowhere/nsenter"])
def test_a_failed_modprobe_reports_the_cards_already_bound(
    live: ModuleType, kernel: Kernel, capsys: pytest.CaptureFixture[str], prefix: str
) -> None:
    cards = card(kernel, AUDIO), card(kernel, CARD, driver="pci-stub")
    result = run(live, kernel, capsys, *cards, command_prefix=[prefix])
    assert result["failed"]
    assert (result["changed"], result["bound"]) == (True, [AUDIO])
    assert CARD in result["msg"]
    assert "modprobe pci-stub failed" in result["msg"] or "/nowhere/nsenter" in result["msg"]
    assert kernel.state()[AUDIO] == ("vfio-pci", "vfio-pci")
