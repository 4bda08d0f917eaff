"""The stand-in for the SSH servers of the example hosts, reached as clean-up reaches a host."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.connect.ssh.config import SshOptions
from gpustack.repair.hypervisor import Hypervisors
from gpustack_demo.examples import hosts
from gpustack_demo.examples.host import write_host
from gpustack_demo.examples.ssh_server import ExampleSshServer

_DOMAIN = """<domstatus state='running'><domain><uuid>vm1</uuid><devices><hostdev><source>
<address domain='0x0000' bus='0x84' slot='0x00' function='0x0'/></source></hostdev></devices></domain></domstatus>"""


def test_hosts_answer_for_their_own_directory_as_it_is_then(tmp_path: Path) -> None:
    roots = {name: tmp_path / name for name in ("gpu01", "gpu04")}
    for name, root in roots.items():
        write_host(root, hosts.talk_host(name))
        (root / "proc/1/fd").mkdir(parents=True)
        (root / "run/libvirt/qemu").mkdir(parents=True)

    def before(name: str) -> None:
        if name == "gpu01":
            (roots[name] / "run/libvirt/qemu/vm1.xml").write_text(_DOMAIN)

    with ExampleSshServer(roots, tmp_path / "ssh", before) as server:
        options = SshOptions(config=server.config, known_hosts=server.known_hosts)
        with Hypervisors(ssh=options) as hypervisors:
            answers = {name: hypervisors.ask(name) for name in roots}
            stranger = hypervisors.ask("gpu09")
    assert [answer.gap for answer in answers.values()] == ["", ""]
    assert answers["gpu01"].users == {"0000:84:00.0": frozenset({"vm1"})}
    assert answers["gpu04"].users == {}
    assert answers["gpu04"].names == {"gpu04"}
    assert stranger.gap


def test_another_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    write_host(tmp_path / "gpu01", hosts.talk_host("gpu01"))
    roots = {"gpu01": tmp_path / "gpu01"}
    with ExampleSshServer(roots, tmp_path / "ssh") as server, ExampleSshServer(roots, tmp_path / "other") as second:
        (tmp_path / "ssh/identity").write_text((tmp_path / "other/identity").read_text())
        options = SshOptions(config=server.config, known_hosts=server.known_hosts)
        with Hypervisors(ssh=options) as hypervisors:
            assert "gpu01" in hypervisors.ask("gpu01").gap
        assert second.config != server.config
