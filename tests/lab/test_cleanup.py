"""`cleanup.yml` as printed, on a host with systemd: the unit of nova-compute stops while a stale row is repaired."""

from __future__ import annotations

import shlex
from pathlib import Path

import sqlalchemy as sa

from support.cellfile import CellFile, nova_conf

from .commands import ssh_entry
from .conftest import Lab
from .machine import Machine
from .playbooks import play
from .test_prepare import gpu_functions
from .topology import GPU_ID, Shape

UNIT = """\
[Unit]
Description=a stand-in for nova-compute, whose process has its name
[Service]
ExecStart=/usr/local/bin/nova-compute infinity
ExecStartPost=/bin/sh -c "echo start >>/root/moments"
ExecStopPost=/bin/sh -c "echo stop >>/root/moments"
"""


def _moments(host: Machine) -> list[str]:
    return host.ssh(["cat", "/root/moments"]).split()


def _status(cell: CellFile) -> str:
    with cell.engine.connect() as connection:
        return str(connection.execute(sa.text("SELECT status FROM pci_devices")).scalar_one())


def test_the_unit_stops_while_a_row_is_repaired(lab: Lab, tmp_path: Path) -> None:
    with lab.booted("cleanup", Shape()) as host:
        host.ssh(["mkdir", "-p", "/run/libvirt/qemu"])  # no guest runs
        host.ssh(["cp", "/bin/sleep", "/usr/local/bin/nova-compute"])
        host.ssh(["tee", "/etc/systemd/system/nova-compute.service"], stdin=UNIT)
        host.ssh(["systemctl", "daemon-reload"])
        host.ssh(["systemctl", "start", "nova-compute.service"])
        address = next(function.address for function in gpu_functions(host) if function.id == GPU_ID)
        cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
        vendor, product = GPU_ID.split(":")
        cell.device(cell.host(host.name), address, "unavailable", vendor_id=vendor, product_id=product)
        conf = nova_conf(tmp_path, {"cell1": cell.url}, service_down_time=3600)
        (tmp_path / "ssh_config").write_text(ssh_entry(host))
        ssh = ["--sudo", "--ssh-config", str(tmp_path / "ssh_config"), "--timeout", "120", "--wait", "0"]
        variables = (
            *("-e", f"gpustack_cleanup_config={conf}", "-e", "gpustack_cleanup_silence=0"),
            *("-e", f'{{"gpustack_cleanup_unblock": ["{host.name}/{address}"], "gpustack_cleanup_arguments": {ssh}}}'),
        )

        lab.report(f"cleanup.yml --check {shlex.join(variables)}")
        run = play(host, "cleanup.yml", *variables, "--check")
        assert run.code == 0, run.output
        assert (_status(cell), _moments(host)) == ("unavailable", ["start"])

        lab.report("cleanup.yml")
        run = play(host, "cleanup.yml", *variables)
        assert run.code == 0, run.output
        assert (_status(cell), _moments(host)) == ("available", ["start", "stop", "start"])
        assert host.ssh(["systemctl", "is-active", "nova-compute.service"]).strip() == "active"

        lab.report("cleanup.yml again, without a stale row")
        run = play(host, "cleanup.yml", *variables)
        assert run.code == 0, run.output
        assert _moments(host) == ["start", "stop", "start"]
