"""Fixtures of the kernel lab."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from . import playbooks, states
from .accelerator import choose_accelerator
from .errors import LabError
from .finish import first_boot
from .image import Image, ensure_image
from .machine import Machine
from .recipe import Kind
from .topology import Shape


@dataclass(frozen=True, kw_only=True)
class Lab:
    """Everything a test needs to start hosts."""

    image: Image
    accelerator: str
    directory: Path
    report: Callable[[str], None]

    @contextmanager
    def host(
        self, name: str, shape: Shape, *, extra_mebibytes: int = 0, moment: Path | None = None
    ) -> Iterator[Machine]:
        """A freshly installed host of the given shape that answers on SSH; its logs go to a directory `name`.

        With `moment` it is a host as another one was at that moment (see `Machine.keep`).
        """
        with self.machine(name, shape, extra_mebibytes, moment=moment) as machine:
            self.report(f"{name}: power on; logs in {machine.directory}")
            machine.wait_ssh()
            yield machine
            self.report(f"{name}: done")

    @contextmanager
    def booted(self, name: str, shape: Shape, *, extra_mebibytes: int = 0) -> Iterator[Machine]:
        """The same host after its first boot, from the cache if it has one: for tests of what comes after the boot."""
        state = self.booted_directory(shape, extra_mebibytes)
        with ExitStack() as stack:
            machine = self._resumed(stack, name, shape, extra_mebibytes, state)
            if machine is None:
                machine = stack.enter_context(self.host(name, shape, extra_mebibytes=extra_mebibytes))
                states.save(machine, state)
            yield machine
            self.report(f"{name}: done")

    def prepared_directory(self, shape: Shape) -> Path:
        """Where the state of a host after prepare.yml and its reboot is kept."""
        files = (*states.PRODUCT, Path(playbooks.__file__))
        return states.derived_directory(self.image, self.booted_directory(shape), "prepared", files)

    def prepared_state(self, shape: Shape) -> Path:
        """The same, made if the cache has none."""
        state = self.prepared_directory(shape)
        if not states.used(state, self.report):
            with self.booted("prepared", shape) as machine:
                self.report("prepare.yml with a reboot")
                run = playbooks.play(machine, "prepare.yml", "-e", "gpustack_reboot=true")
                if run.code:
                    raise machine.error(f"prepare.yml ended with code {run.code}:\n{run.output}")
                machine.wait_ssh()
                states.save(machine, state)
        return state

    def booted_directory(self, shape: Shape, extra_mebibytes: int = 0) -> Path:
        """Where the state of a host after its first boot is kept."""
        return states.state_directory(self.image, self.accelerator, shape, extra_mebibytes)

    def _resumed(self, stack: ExitStack, name: str, shape: Shape, extra_mebibytes: int, state: Path) -> Machine | None:
        """A machine that goes on from the state until `stack` ends; None if the cache has none that works."""
        if not states.used(state, self.report):
            return None
        with ExitStack() as attempt:
            machine = attempt.enter_context(self.machine(name, shape, extra_mebibytes, state=state))
            self.report(f"{name}: goes on from {state.name}; logs in {machine.directory}")
            try:
                machine.resume()
            except LabError as error:
                self.report(f"{name}: {str(error).splitlines()[0]}; the state is removed")
                shutil.rmtree(state)
            else:
                stack.push(attempt.pop_all())
                return machine
        shutil.rmtree(machine.directory)
        return None

    def machine(
        self,
        name: str,
        shape: Shape,
        extra_mebibytes: int = 0,
        *,
        moment: Path | None = None,
        state: Path | None = None,
    ) -> Machine:
        """A machine of this image, which runs from its `__enter__`; `name` is that of its directory."""
        return Machine(
            image=self.image,
            directory=self.directory / name,
            accelerator=self.accelerator,
            shape=shape,
            extra_mebibytes=extra_mebibytes,
            moment=moment,
            state=state,
        )


@pytest.fixture(scope="session", autouse=True)
def terminated_as_interrupted() -> None:
    """SIGTERM ends the tests like Ctrl+C, so that hosts and services end too; Ctrl+C works under nohup."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)


@pytest.fixture(scope="session")
def report(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Says on the terminal, past pytest's capture, how far a long test is."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    started = time.monotonic()

    def say(message: str) -> None:
        seconds = int(time.monotonic() - started)
        with capture.global_and_fixture_disabled():
            print(f"\nlab {seconds // 60:2d}:{seconds % 60:02d}  {message}", end="", flush=True)

    return say


@pytest.fixture(scope="session")
def lab(report: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The image (built when the cache has none) and the accelerator that works here."""
    return _lab(report, tmp_path_factory, "initramfs-tools")


@pytest.fixture(scope="session")
def dracut_lab(report: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The same with a host whose initramfs dracut makes."""
    return _lab(report, tmp_path_factory, "dracut")


@pytest.fixture(scope="session")
def compute_lab(report: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The same with libvirt and nova-compute on the host."""
    return _lab(report, tmp_path_factory, "compute")


@pytest.fixture(scope="session")
def systemd_boot_lab(report: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The same with a host that systemd-boot starts."""
    return _lab(report, tmp_path_factory, "systemd-boot")


@pytest.fixture(scope="session")
def debian13_lab(report: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The same with a host of Debian 13, with libvirt and nova-compute from its packages."""
    return _lab(report, tmp_path_factory, "debian13")


def _lab(report: Callable[[str], None], directories: pytest.TempPathFactory, kind: Kind) -> Lab:
    image = ensure_image(_finish, report, kind)
    accelerator = choose_accelerator(image)
    report(f"image {image.directory}; accelerator {accelerator}")
    return Lab(image=image, accelerator=accelerator, directory=directories.mktemp("lab"), report=report)


def _finish(unfinished: Image) -> None:
    first_boot(unfinished, choose_accelerator(unfinished))
