"""One virtual host: starts QEMU on overlays of an image, talks to it over SSH, and always ends it."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from gpustack_demo.embedded.process import free_port

from . import monitor, recipe, topology
from .errors import LabError, tail
from .image import Image

FIRMWARE_CODE = Path("/usr/share/OVMF/OVMF_CODE_4M.fd")
FIRMWARE_VARIABLES = Path("/usr/share/OVMF/OVMF_VARS_4M.fd")
BOOT_TIMEOUT = 600.0
RESUME_TIMEOUT = 300.0
CONNECT_TIMEOUT, POLL_CONNECT_TIMEOUT = 60, 10
"""Seconds until SSH gives up a connection: to a host that is up, and to one that boots and is asked again."""
MEMORY = "memory.zst"
RELAY = Path(__file__).with_name("relay.py")
POLL_INTERVAL = 1.0


@dataclass(frozen=True, kw_only=True)
class DirectBoot:
    """A boot without the boot loader, on the image's own disks: how an image is finished."""

    kernel: Path
    initramfs: Path
    arguments: str


@dataclass(kw_only=True)
class Machine:
    """A host that runs from `__enter__` to `__exit__`.

    What it writes goes to overlays in `directory`, which end with it, and to logs, which stay. `panics` is how often
    its kernel may panic in all: one more is the end of waiting for it. `extra_mebibytes` is the size of one more disk,
    empty at first: the host's /dev/vdc. `moment` is what another machine had on its disks (see `keep`);
    `state` is also what it had in its memory (see `save` and `resume`). `forwards` are addresses and ports of the
    host's own network that lead to ports of this machine's loopback. A state does not depend on these ports.
    """

    image: Image
    directory: Path
    accelerator: str
    name: str = recipe.HOST_NAME
    shape: topology.Shape = field(default_factory=topology.Shape)
    direct_boot: DirectBoot | None = None
    port: int = 0
    panics: int = 0
    extra_mebibytes: int = 0
    moment: Path | None = None
    state: Path | None = None
    forwards: Mapping[str, int] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None
    _sockets: Path | None = None

    @property
    def serial_log(self) -> Path:
        """Everything the host printed on its serial port, over all its boots."""
        return self.directory / "serial.log"

    @property
    def known_hosts(self) -> Path:
        """An SSH known-hosts file with this machine's port and real host key."""
        return self.directory / "known_hosts"

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.state is not None:
            for path in self.state.iterdir():
                if path.name != MEMORY:
                    _copy(path, self.directory)
        elif self.moment is not None:
            for path in self.moment.iterdir():
                shutil.move(path, self.directory / path.name)
            self.moment.rmdir()
        elif self.direct_boot is None:
            for source in self._sources():
                overlay = str(self._overlay(source))
                _run("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(source), overlay)
        if self.extra_mebibytes and self.state is None:
            _run("qemu-img", "create", "-q", "-f", "qcow2", str(self._extra()), f"{self.extra_mebibytes}M")
        if self.moment is None and self.state is None:
            shutil.copyfile(FIRMWARE_VARIABLES, self._variables())
        self.port = self.port or free_port()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {self.image.host_key_public}\n")
        self._start(*(("-incoming", f"exec:zstd -dcq {shlex.quote(str(self.state / MEMORY))}") if self.state else ()))
        return self

    def power_on(self) -> None:
        """Starts the host on its disks as they are, after `kill`."""
        self._start()

    def _start(self, *more: str) -> None:
        argv = [
            # The kernel ends QEMU when this process dies, however it dies.
            *("setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64"),
            *topology.arguments(self.shape, self.accelerator, self.port, self._relays()),
            *("-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={FIRMWARE_CODE}"),
            *("-drive", f"if=pflash,format=raw,unit=1,file={self._variables()}"),
            *self._disks(),
            *("-chardev", f"file,id=serial,path={self.serial_log},append=on", "-serial", "chardev:serial"),
            *("-qmp", f"unix:{self._socket()},server=on,wait=off"),
            *more,
        ]
        if self.direct_boot is not None:
            argv += ["-kernel", str(self.direct_boot.kernel), "-initrd", str(self.direct_boot.initramfs)]
            argv += ["-append", self.direct_boot.arguments]
        with self._qemu_log().open("ab") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for scratch in self._scratch():
            scratch.unlink()
        shutil.rmtree(self._socket().parent)

    def _scratch(self) -> list[Path]:
        """What a machine writes and that ends with it: disks, and the firmware's variables."""
        return [*self.directory.glob("*.qcow2"), *self.directory.glob("*.fd")]

    def _relays(self) -> dict[str, str]:
        """The command that QEMU starts for each connection of the host to an address of `forwards`."""
        program = [sys.executable, "-IS", str(RELAY)]
        return {address: shlex.join([*program, str(port)]) for address, port in self.forwards.items()}

    def _sources(self) -> tuple[Path, ...]:
        return self.image.esp, self.image.disk

    def _overlay(self, source: Path) -> Path:
        return self.directory / f"{source.stem}.qcow2"

    def _extra(self) -> Path:
        return self.directory / "extra.qcow2"

    def _variables(self) -> Path:
        return self.directory / "variables.fd"

    def _socket(self) -> Path:
        """The control socket, by a short path: a socket's may have no more than 107 characters."""
        if self._sockets is None:
            self._sockets = Path(tempfile.mkdtemp(prefix="gpustack-lab-"))
        return self._sockets / "qmp"

    def _disks(self) -> list[str]:
        """Root disk and ESP: overlays, or the image itself while it is being finished.

        Both have a boot index: the firmware connects only the disks that have one, as soon as any has.
        """
        result = []
        for index, source in enumerate(self._sources()):
            path, kind = (source, "raw") if self.direct_boot is not None else (self._overlay(source), "qcow2")
            name = source.stem
            result += ["-drive", f"if=none,id={name},format={kind},cache=unsafe,discard=unmap,file={path}"]
            # Fixed slots: the root disk is vda and the ESP vdb, though the firmware tries the ESP first.
            slot = "10" if name == "esp" else "f"
            result += ["-device", f"virtio-blk-pci,drive={name},addr={slot},bootindex={index + 1}"]
        if self.extra_mebibytes:
            result += ["-drive", f"if=none,id=extra,format=qcow2,cache=unsafe,file={self._extra()}"]
            result += ["-device", "virtio-blk-pci,drive=extra,addr=11,bootindex=3"]
        return result

    def kill(self) -> None:
        """Ends QEMU at once: for the host, its power is cut. What it has handed to its disks is on them."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def keep(self, directory: Path) -> None:
        """Copies what a power cut at this moment would leave, for a machine that starts from it; the host goes on."""
        directory.mkdir(parents=True)
        monitor.command(self._socket(), "stop")  # hands all that the host has written to the files
        try:
            for path in self._scratch():
                _copy(path, directory)
        finally:
            monitor.command(self._socket(), "cont")

    def save(self, directory: Path) -> None:
        """Copies disks, memory and serial log, for a machine that goes on from this moment; the host goes on too.

        An emulated AMD IOMMU refuses: QEMU can't save it.
        """
        directory.mkdir(parents=True)
        monitor.command(self._socket(), "stop")
        try:
            monitor.command(self._socket(), "migrate-set-parameters", **{"max-bandwidth": 20 << 30})
            monitor.command(self._socket(), "migrate", uri=f"exec:zstd -1q >{shlex.quote(str(directory / MEMORY))}")
            while (status := monitor.command(self._socket(), "query-migrate")["status"]) != "completed":
                if status in ("failed", "cancelled"):
                    raise self.error("QEMU can't save the host's memory")
                time.sleep(POLL_INTERVAL)
            for path in (*self._scratch(), self.serial_log):
                _copy(path, directory)
        finally:
            monitor.command(self._socket(), "cont")

    def resume(self, timeout: float = RESUME_TIMEOUT) -> None:
        """Waits until the memory of `state` is loaded, lets the host go on, and sets its clock."""
        end = time.monotonic() + timeout
        while self._status() == "inmigrate":
            if time.monotonic() > end:
                raise self.error(f"the memory in {self.state} was not loaded within {timeout:.0f} s")
            time.sleep(POLL_INTERVAL)
        monitor.command(self._socket(), "cont")
        self.wait_ssh(timeout)
        self.ssh(["date", "--set", f"@{time.time():.0f}"])

    def _status(self) -> str:
        if self._process is None or self._process.poll() is not None:
            raise self.error("QEMU has ended")
        if not self._socket().exists():
            return "inmigrate"
        return str(monitor.command(self._socket(), "query-status")["status"])

    def inject_error(self, device: str, error: str) -> None:
        """Lets one of QEMU's devices report a PCI Express error."""
        line = f"pcie_aer_inject_error {device} {error}"
        answer = monitor.command(self._socket(), "human-monitor-command", **{"command-line": line})
        if not answer.startswith("OK"):
            raise self.error(f"QEMU refuses {line}: {answer}")

    def unplug(self, device: str) -> None:
        """Asks the host to release one of QEMU's devices, as the button at a slot does."""
        monitor.command(self._socket(), "device_del", id=device)

    def pull_cable(self, device: str) -> None:
        """Takes the link of a network card away, of QEMU that has just started too."""
        while self._status() == "inmigrate":
            time.sleep(POLL_INTERVAL)
        monitor.command(self._socket(), "set_link", name=device, up=False)

    @contextlib.contextmanager
    def cable_pulled(self) -> Iterator[None]:
        """Nothing comes from or to the host's network card in the meantime."""
        monitor.command(self._socket(), "set_link", name="net0", up=False)
        try:
            yield
        finally:
            monitor.command(self._socket(), "set_link", name="net0", up=True)

    def boots(self) -> int:
        """How often the firmware has started a boot loader since power-on."""
        return len(re.findall(rb"BdsDxe: starting Boot", self.serial_log.read_bytes()))

    def panicked(self) -> int:
        """How often the host's kernel has panicked since power-on."""
        if not self.serial_log.exists():
            return 0
        return len(re.findall(rb"\] Kernel panic - not syncing", self.serial_log.read_bytes()))

    def ssh_options(self, *, connect_timeout: int = CONNECT_TIMEOUT) -> list[str]:
        """OpenSSH options that reach this machine and no other: its key is checked, nothing is asked."""
        return [
            *("-F", "none", "-p", str(self.port), "-i", str(self.image.login_key)),
            *("-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"),
            *("-o", f"UserKnownHostsFile={self.known_hosts}", "-o", "GlobalKnownHostsFile=none"),
            *("-o", f"ConnectTimeout={connect_timeout}", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"),
            *("-o", "LogLevel=ERROR"),
        ]

    def ssh(self, argv: Sequence[str], *, stdin: str = "", timeout: float = 300.0, check: bool = True) -> str:
        """Runs a command as root in the host and returns what it printed.

        Its failure, unless `check` is false, and that of SSH raise LabError.
        """
        process = self._try_ssh(argv, stdin=stdin, timeout=timeout)
        if process is None or process.returncode == 255 or (check and process.returncode != 0):
            outcome = "did not end in time" if process is None else f"ended with code {process.returncode}"
            output = "" if process is None else f"\n{process.stdout}{process.stderr}"
            raise self.error(f"'{shlex.join(argv)}' in the host {outcome}{output}")
        return process.stdout

    def _try_ssh(
        self, argv: Sequence[str], *, stdin: str = "", timeout: float, connect_timeout: int = CONNECT_TIMEOUT
    ) -> subprocess.CompletedProcess[str] | None:
        options = self.ssh_options(connect_timeout=connect_timeout)
        command = ["ssh", *options, "root@127.0.0.1", shlex.join(argv)]
        with contextlib.suppress(subprocess.TimeoutExpired):
            return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
        return None

    def wait_ssh(self, timeout: float = BOOT_TIMEOUT, *, other_than_boot: str | None = None) -> str:
        """Waits until the host answers, in another boot than the given one, and returns its boot id."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if self._process is None or self._process.poll() is not None:
                raise self.error("QEMU has ended")
            if self.panicked() > self.panics:
                raise self.error("the host's kernel has panicked")
            boot_id = ["cat", "/proc/sys/kernel/random/boot_id"]
            process = self._try_ssh(boot_id, timeout=30, connect_timeout=POLL_CONNECT_TIMEOUT)
            if process is not None and process.returncode == 0 and process.stdout.strip() != other_than_boot:
                return process.stdout.strip()
            time.sleep(POLL_INTERVAL)
        raise self.error(f"the host did not answer on SSH within {timeout:.0f} s")

    def reboot(self) -> str:
        """Reboots the host, waits for it, and returns the new boot id."""
        before = self.wait_ssh()
        self._try_ssh(["systemctl", "reboot"], timeout=90)
        return self.wait_ssh(other_than_boot=before)

    def power_off(self, timeout: float = 300.0) -> None:
        """Shuts the host down and waits until QEMU has ended."""
        self._try_ssh(["systemctl", "poweroff"], timeout=90)
        try:
            if self._process is not None:
                self._process.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise self.error(f"the host did not power off within {timeout:.0f} s") from None

    def error(self, message: str) -> LabError:
        """An error with what QEMU said and the end of the serial log."""
        return LabError(
            f"{message}\n--- QEMU ({self._qemu_log()})\n{tail(self._qemu_log())}"
            f"\n--- serial port ({self.serial_log})\n{tail(self.serial_log)}"
        )

    def _qemu_log(self) -> Path:
        return self.directory / "qemu.log"


def _copy(path: Path, directory: Path) -> None:
    _run("cp", "--sparse=always", "--reflink=auto", str(path), str(directory))


def _run(*argv: str) -> None:
    process = subprocess.run(argv, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise LabError(f"{shlex.join(argv)} ended with code {process.returncode}: {process.stderr.strip()}")
