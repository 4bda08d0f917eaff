"""nova.yml, run for real on example hosts and a controller that is a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpustack.configure.lint import lint
from gpustack.configure.lint.subject import LintSubject
from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.store import save_snapshot
from gpustack.nova_options import releases
from support.cellfile import CellFile, nova_conf
from support.playbook_place import Place, tree

SPEC = """\
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}}
  mi210: {match: {vendor: "1002", product: "740f"}}
hosts:
  "talk*": [k4200]
  "epyc*": [mi210]
nova: {release: "2025.2", placement: PLACEMENT}
"""
DROP_IN = "etc/nova/nova.conf.d/300-gpustack.conf"
SECRET = "transport_url = rabbit://nova:s3cret@mq\n"
UNITS = {"compute": "nova-compute", "api": "nova-api", "scheduler": "nova-scheduler", "conductor": "nova-conductor"}


def conf(root: Path, text: str, name: str = "nova.conf") -> Path:
    """A file of Nova's on a host."""
    path = root / "etc/nova" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[DEFAULT]\n{SECRET}{text}", encoding="utf-8")
    return path


class Cloud:
    """Two compute hosts and a controller; what would be restarted is written down."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.log = place.path / "commands"
        self.spec("off")
        self.roots = {name: self.compute(name) for name in ("talk", "epyc")}
        self.control()

    def spec(self, placement: str, quotas: str = "") -> None:
        self.place.spec(SPEC.replace("PLACEMENT", placement) + (f"quotas: {quotas}\n" if quotas else ""))

    def _common(self, name: str, root: Path, services: list[str]) -> dict[str, Any]:
        for service in services:
            unit = root / f"usr/lib/systemd/system/{UNITS[service]}.service"
            unit.parent.mkdir(parents=True, exist_ok=True)
            unit.touch()
        conf(root, "")
        prefix = ["sh", "-c", f'echo {name} "$@" >> {self.log}', "sh"]
        return {"gpustack_nova_services": services, "gpustack_command_prefix": prefix}

    def compute(self, name: str) -> Path:
        root = self.place.add(name)
        self.place.variables[name] |= self._common(name, root, ["compute"])
        return root

    def control(self) -> None:
        root = self.place.path / "roots" / "ctl"
        root.mkdir()
        self.place.variables["ctl"] = {"gpustack_root": str(root)}
        self.place.variables["ctl"] |= self._common("ctl", root, ["api", "scheduler", "conductor"])
        self.roots["ctl"] = root

    def restarted(self) -> list[str]:
        """What was restarted since the last time, in that order."""
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return [line.replace("systemctl restart ", "").removesuffix(".service") for line in lines]


@pytest.fixture
def cloud(place: Place) -> Cloud:
    return Cloud(place)


def test_it_configures_computes_first_and_then_has_nothing_to_do(cloud: Cloud) -> None:
    cloud.spec("off", quotas="{default: {k4200: 1}}")
    before = {name: tree(root) for name, root in cloud.roots.items()}
    checked = cloud.place.play("nova", "--check", "--diff")
    assert checked.code == 0, checked.output
    assert {name: tree(root) for name, root in cloud.roots.items()} == before
    assert '+alias = {"name": "k4200"' in checked.output
    assert "would run: " in checked.output
    assert cloud.restarted() == []

    run = cloud.place.play("nova")
    assert run.code == 0, run.output
    assert "s3cret" not in run.output + checked.output
    assert [run.count(name, "changed") for name in cloud.roots] == [checked.count(n, "changed") for n in cloud.roots]
    computes, control = cloud.restarted()[:2], ["ctl nova-api", "ctl nova-scheduler"]
    assert sorted(computes) == ["epyc nova-compute", "talk nova-compute"]
    release = releases.release("2025.2")
    arguments = [f"compute={cloud.roots[name]}/etc/nova" for name in ("talk", "epyc")]
    arguments += [f"{service}={cloud.roots['ctl']}/etc/nova" for service in ("api", "scheduler", "conductor")]
    assert {result.word for result in lint(arguments, LintSubject(release=release)).results} == {"Success"}
    talk = (cloud.roots["talk"] / DROP_IN).read_text(encoding="utf-8")
    assert 'device_spec = {"vendor_id": "10de", "product_id": "11b4"}' in talk
    markers = {name for name, root in cloud.roots.items() if (root / "etc/nova/provider_config/gpustack.yaml").exists()}
    assert markers == {"talk"}

    settled = {name: tree(root) for name, root in cloud.roots.items()}
    repeat = cloud.place.play("nova")
    assert [repeat.count(name, "changed") for name in cloud.roots] == [0, 0, 0]
    assert {name: tree(root) for name, root in cloud.roots.items()} == settled
    assert cloud.restarted() == []
    assert control


def test_only_services_that_read_what_changed_are_restarted(cloud: Cloud) -> None:
    cloud.place.play("nova")
    assert "ctl nova-scheduler" in cloud.restarted()
    conf(cloud.roots["ctl"], "[filter_scheduler]\nenabled_filters = ComputeFilter,NUMATopologyFilter\n")
    run = cloud.place.play("nova")
    assert run.code == 0, run.output
    assert cloud.restarted() == ["ctl nova-scheduler"]
    text = (cloud.roots["ctl"] / DROP_IN).read_text(encoding="utf-8")
    assert "enabled_filters = ComputeFilter,NUMATopologyFilter,PciPassthroughFilter\n" in text
    cloud.spec("report")
    cloud.place.play("nova")
    assert sorted(cloud.restarted()) == ["epyc nova-compute", "talk nova-compute"]
    cloud.spec("schedule")
    cloud.place.play("nova")
    assert cloud.restarted() == ["ctl nova-api", "ctl nova-scheduler", "ctl nova-conductor"]
    cloud.place.play("nova", gpustack_nova_restart="always")
    assert len(cloud.restarted()) == 5


def test_what_stands_in_the_way_stops_the_host_before_it_is_changed(cloud: Cloud) -> None:
    conflict = '[pci]\nalias = {"name": "k4200", "vendor_id": "10de", "product_id": "1234"}\n'
    conf(cloud.roots["ctl"], conflict, "nova.conf.d/100-old.conf")
    run = cloud.place.play("nova")
    assert run.code == 2
    assert "ctl:/etc/nova/nova.conf.d/100-old.conf:4" in run.fatal("ctl")
    assert "GPU313" in run.fatal("ctl")
    assert not (cloud.roots["ctl"] / DROP_IN).exists()
    assert not any(line.startswith("ctl") for line in cloud.restarted())


def test_kollas_containers_get_a_block_of_their_own(cloud: Cloud) -> None:
    root = cloud.roots["talk"]
    path = root / "etc/kolla/nova-compute/nova.conf"
    path.parent.mkdir(parents=True)
    foreign = f'[DEFAULT]\n{SECRET}[pci]\npassthrough_whitelist = [{{"devname": "eth9", "physical_network": "p"}}]\n'
    path.write_text(foreign, encoding="utf-8")
    path.chmod(0o660)
    (root / "usr/bin").mkdir(parents=True, exist_ok=True)
    (root / "usr/bin/podman").touch()
    cloud.place.variables["talk"]["gpustack_nova_kolla"] = True
    run = cloud.place.play("nova", "--diff")
    assert run.code == 0, run.output
    text = path.read_text(encoding="utf-8")
    assert text.startswith(foreign)
    assert "# BEGIN gpustack" in text
    assert "s3cret" not in run.output
    assert path.stat().st_mode & 0o777 == 0o660
    assert "talk podman restart nova_compute" in cloud.restarted()
    repeat = cloud.place.play("nova")
    assert repeat.count("talk", "changed") == 0, repeat.output
    assert path.read_text(encoding="utf-8") == text
    assert cloud.restarted() == []


NOTE = "run/gpustack-nova-restart"


def test_what_an_interrupted_run_left_to_restart_is_restarted(cloud: Cloud) -> None:
    fails = ["sh", "-c", "exit 1", "sh"]
    works = cloud.place.variables["talk"]["gpustack_command_prefix"]
    cloud.place.variables["talk"]["gpustack_command_prefix"] = fails
    assert cloud.place.play("nova").code == 2
    assert (cloud.roots["talk"] / DROP_IN).exists()
    assert (cloud.roots["talk"] / NOTE).read_text(encoding="utf-8") == "compute\n"
    cloud.restarted()

    cloud.place.variables["talk"]["gpustack_command_prefix"] = works
    run = cloud.place.play("nova")
    assert run.code == 0, run.output
    assert "talk nova-compute" in cloud.restarted()
    assert not (cloud.roots["talk"] / NOTE).exists()
    cloud.place.play("nova")
    assert cloud.restarted() == []


def test_one_host_alone_takes_the_facts_of_the_others_from_a_snapshot(cloud: Cloud) -> None:
    cloud.place.spec(SPEC.replace("PLACEMENT", "off").replace('"epyc*"', "epyc"))
    for limit in ("talk", "ctl"):  # the API needs the aliases of all hosts too
        refused = cloud.place.play("nova", "--limit", limit)
        assert refused.code == 2
        assert "no facts of 1 host of gpustack.yaml: epyc. No host is changed" in " ".join(refused.output.split())
        assert not (cloud.roots[limit] / DROP_IN).exists()
    assert cloud.restarted() == []
    snapshots = cloud.place.path / "slices"
    snapshots.mkdir()
    raw = collect(str(cloud.roots["epyc"]))
    save_snapshot(snapshots / "2.json", [{**raw, "hostname": "epyc"}])
    run = cloud.place.play("nova", "--limit", "talk", gpustack_nova_snapshot="slices")
    assert run.code == 0, run.output
    text = (cloud.roots["talk"] / DROP_IN).read_text(encoding="utf-8")
    assert '"mi210"' in text
    assert '"740f"}' not in text.partition("device_spec")[2]
    assert cloud.restarted() == ["talk nova-compute"]


def test_how_a_service_is_started_decides_which_file_does(cloud: Cloud) -> None:
    """With --config-file, as Debian starts its services, nova.conf comes after the drop-ins."""
    root = cloud.roots["ctl"]
    line = root / "proc/77/cmdline"
    line.parent.mkdir(parents=True)
    conf(root, "[filter_scheduler]\nenabled_filters = ComputeFilter\n")

    def started(*arguments: str) -> None:
        line.write_text("\0".join(["/usr/bin/python3", "/usr/bin/nova-scheduler", *arguments, ""]), encoding="utf-8")

    started("--config-file", "/etc/nova/nova.conf", "--log-file=/var/log/nova/nova-scheduler.log")
    run = cloud.place.play("nova")
    assert run.code == 2
    assert "GPU323 ctl:/etc/nova/nova.conf:4" in run.fatal("ctl")
    assert "set the line there to ComputeFilter,PciPassthroughFilter" in run.fatal("ctl")
    assert not (root / DROP_IN).exists()

    started("--config-dir=/etc/nova/other.d")
    run = cloud.place.play("nova")
    assert run.code == 2
    assert "GPU324 ctl nova-scheduler" in run.fatal("ctl")
    assert "GPU323" not in run.fatal("ctl")

    started()
    run = cloud.place.play("nova")
    assert run.code == 0, run.output
    assert (root / DROP_IN).exists()


XML = (
    "<domstatus><domain><uuid>vm</uuid><devices><hostdev><source>"
    "<address domain='0x0000' bus='0x84' slot='0x00' function='0x0'/></source></hostdev></devices></domain></domstatus>"
)


def in_use(root: Path) -> None:
    """An instance runs there with a GPU: libvirt's status file, and the kernel's list of processes."""
    (root / "run/libvirt/qemu").mkdir(parents=True)
    (root / "run/libvirt/qemu/instance-1.xml").write_text(XML, encoding="utf-8")
    (root / "proc/1/fd").mkdir(parents=True)
    name = root / "proc/sys/kernel/hostname"
    name.parent.mkdir(parents=True, exist_ok=True)
    name.write_text("talk\n", encoding="utf-8")


def test_nova_compute_is_not_restarted_beside_a_gpu_that_nova_calls_free(cloud: Cloud) -> None:
    """The rows are in a small cell of Nova's tables that stands for its databases."""
    in_use(cloud.roots["talk"])
    refused = cloud.place.play("nova", "--check")
    assert "GPU385" in refused.fatal("talk"), refused.output
    assert "0000:84:00.0" in refused.fatal("talk")

    cell = CellFile(f"sqlite:///{cloud.place.path}/cell.sqlite")
    cell.device(cell.host("talk", seen=5), "0000:84:00.0")
    cell.instance("vm", "talk")
    databases = {
        "gpustack_cleanup_config": str(nova_conf(cloud.place.path, {"cell1": cell.url}, service_down_time=3600))
    }
    refused = cloud.place.play("nova", **databases)
    assert "GPU386" in refused.fatal("talk"), refused.output
    assert "lacks a device" in refused.fatal("talk")
    assert not (cloud.roots["talk"] / DROP_IN).exists()
    assert not any(line.startswith("talk") for line in cloud.restarted())

    run = cloud.place.play("nova", gpustack_nova_restart_unchecked=["talk"], **databases)
    assert run.code == 0, run.output
    assert "GPU388" in run.output
    assert "talk nova-compute" in cloud.restarted()


def test_unknown_gpus_stop_their_own_host_only(cloud: Cloud) -> None:
    sysfs = cloud.roots["talk"] / "sys"
    group = (sysfs / "bus/pci/devices/0000:84:00.0/iommu_group").readlink().name
    (sysfs / f"kernel/iommu_groups/{group}/devices/0000:99:00.0").mkdir()  # a device that was removed meanwhile
    run = cloud.place.play("nova")
    assert run.code == 2, run.output
    assert "GPU024 talk 0000:84:00.0" in run.output
    assert not (cloud.roots["talk"] / DROP_IN).exists()
    assert (cloud.roots["epyc"] / DROP_IN).is_file()
    assert (cloud.roots["ctl"] / DROP_IN).is_file()


def test_services_that_tags_leave_out_are_restarted_by_the_next_run(cloud: Cloud) -> None:
    run = cloud.place.play("nova", "--skip-tags", "restart")
    assert run.code == 0, run.output
    assert cloud.restarted() == []
    run = cloud.place.play("nova")
    assert run.code == 0, run.output
    assert len(cloud.restarted()) == 4


def test_all_hosts_are_read_first_with_the_free_strategy_too(cloud: Cloud) -> None:
    cloud.place.environment["ANSIBLE_STRATEGY"] = "free"
    run = cloud.place.play("nova", "--forks", "1")
    assert run.code == 0, run.output
    assert (cloud.roots["ctl"] / DROP_IN).is_file()


def test_a_number_of_hosts_is_a_number_and_not_in_the_inventory(cloud: Cloud) -> None:
    run = cloud.place.play("nova", gpustack_nova_serial="few")
    assert run.code == 2
    assert "gpustack_nova_serial is few, expected a number of hosts" in run.output
    next(iter(cloud.place.variables.values()))["gpustack_nova_serial"] = 5
    run = cloud.place.play("nova")
    assert run.code == 2
    assert "gpustack_nova_serial: the play does not read the inventory's value; set it with -e" in run.output
    assert cloud.restarted() == []


@pytest.mark.parametrize("serial", [-1, "0"])
def test_no_number_restarts_all_compute_hosts_at_once(cloud: Cloud, serial: object) -> None:
    run = cloud.place.play("nova", gpustack_nova_serial=serial)
    assert run.code == 2
    assert f"gpustack_nova_serial is {serial}, so Ansible would change all compute hosts at once" in run.output
    assert cloud.restarted() == []
