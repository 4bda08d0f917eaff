"""The demo: from two hosts as they are to a lost GPU that is recovered, a few lines for each step."""

from __future__ import annotations

from gpustack.base.findings import Code
from gpustack_demo.examples.cloud import RELEASE
from gpustack_demo.examples.ssh_server import ExampleSshServer
from gpustack_demo.examples.stage import Stage

_SSH = ("--ssh-config", "ssh/config", "--known-hosts", "ssh/known_hosts")
_CLEANUP = ("--config-file", "cloud/nova.conf", "--grace", "0")
_CLOUD = """
nova: {{release: "{release}", vendordata: {directory}/vendordata.json}}
flavors:
  "k4200-{{count}}": {{model: k4200, count: [1, 2], vcpus: 4, ram: 16GiB, disk: 40GiB, images: [image]}}
quotas: {{default: {{k4200: 3}}}}
"""
_LIST = tuple(word for name in ("Host", "Address", "State", "Instance", "Flavor") for word in ("-c", name))
_PLAN = ("gpustack", "host", "plan")
_NOTHING = "$^"


def first_spec(stage: Stage) -> None:
    """Scan two hosts, and declare which GPUs instances get"""
    for kind, name in (("talk_host", "gpu01"), ("shared_group_host", "gpu03"), ("talk_host", "gpu04")):
        stage.host(kind, name)
    output = _scan(stage, "gpu01", "gpu04", save="before.json", only=r"^\| (Host|gpu01)")
    stage.expect(output.count("nouveau") >= 4, "host drivers hold all four GPUs")
    stage.run("gpustack", "spec", "init", "--snapshot", "before.json", into="gpustack.yaml")
    stage.append("gpustack.yaml", _CLOUD.format(release=RELEASE, directory=stage.directory))
    stage.run("grep", "-E", "^  gpu01|^quotas", "gpustack.yaml")


def prepare(stage: Stage) -> None:
    """Show the changes, make and verify them"""
    stage.inventory("gpu01", "gpu04")
    stage.run(*_PLAN, "gpustack.yaml", "gpu01", "--snapshot", "before.json", only=r"^gpu|^    \d\. create ")
    apply = ("gpustack", "host", "apply", "gpustack.yaml", "-i", "inventory.yaml", "--serial", "2", "--reboot", "--yes")
    stage.run(*apply, only="^gpu.*done")
    verify = ("gpustack", "host", "verify", "gpustack.yaml", "gpu01", "-i", "inventory.yaml")
    output = stage.run(*verify, only=None)
    stage.expect("ready, 2 GPUs" in output, "after the reboot every function is on vfio-pci")


def refusal(stage: Stage) -> None:
    """A host that passthrough would take off the network is refused"""
    _scan(stage, "gpu03", save="gpu03.json")
    stage.run("gpustack", "spec", "init", "--snapshot", "gpu03.json", into="gpu03.yaml", only=None)
    output = stage.run(*_PLAN, "gpu03.yaml", "--snapshot", "gpu03.json", code=13, only=rf"^gpu03|{Code.GROUP_IN_USE}")
    stage.expect("enp102s0" in output, "the plan names the network card")


def instance(stage: Stage) -> None:
    """Configure and start a real Nova, create flavors and a quota, boot an instance with two GPUs"""
    _scan(stage, "gpu01", "gpu04", save="hosts.json")
    vendordata = ("gpustack", "guest", "vendordata", "gpustack.yaml", "--out", "vendordata.json")
    stage.run(*vendordata, only=_NOTHING)
    stage.run("gpustack", "nova", "render", "gpustack.yaml", "--snapshot", "hosts.json", "--out", "nova", only=_NOTHING)
    stage.run("cat", "nova/gpu01/etc/nova/nova.conf.d/300-gpustack.conf", only="^(alias|device|vendor)")
    stage.start_cloud("hosts.json", "nova")
    stage.run("gpustack", "quota", "apply", "gpustack.yaml", "--yes", only="^create")
    stage.run("gpustack", "flavor", "apply", "gpustack.yaml", "--snapshot", "hosts.json", "--yes", only=_NOTHING)
    stage.run("gpustack", "image", "check", "gpustack.yaml", only="^WARNING GPU818")
    _create(stage, "vm1", 2)
    stage.expect(stage.devices(only=None).count("in vm1") == 2, "vm1 has two GPUs")
    output = stage.run("gpustack", "gpu", "list", "--config-file", "cloud/nova.conf", *_LIST, only="vm1")
    held = [line for line in output.splitlines() if "vm1" in line]
    stage.expect(len(held) == 2, "the list shows vm1 on two GPUs")
    stage.names["source"] = held[0].split()[1]
    metadata = ("python", "-m", "gpustack_demo.examples.metadata", "cloud/demo.json", "vm1")
    output = stage.run(*metadata, only="^# Reports")
    stage.expect("# Reports the GPUs" in output, "Nova gives the check to the cloud-init of vm1")
    output = _create(stage, "vm2", 2, code=1, only="over a limit")
    stage.expect("is over limit of 3 due to current usage 2 and delta 2" in output, "Nova refuses GPUs above the quota")


def recovery(stage: Stage) -> None:
    """Lose both GPUs in a failed migration; find, prove and repair the leak"""
    source = stage.names["source"]
    stage.run("gpustack", "example", "leak", "vm1", only=" runs on ")
    output = stage.devices(only=f"Host|{source}")
    stage.expect(output.count("allocated to vm1") == 4, "Nova's rows allocate four GPUs to vm1, which has two")
    stage.run("openstack", "server", "set", "--state", "active", "--auto-approve", "vm1")
    stage.run("gpustack", "cleanup", "plan", *_CLEANUP, only="^class|∴")
    apply = ("gpustack", "cleanup", "apply", *_CLEANUP, *_SSH, "--yes", "--journal", "journal.jsonl")
    stage.run(*apply, only=": done: |gpustack undo")
    _create(stage, "vm2", 1)
    output = stage.devices(only=source)
    stage.expect(output.count("in vm1") == 2, "vm1 keeps its GPUs")
    stage.expect(output.count("in vm2") == output.count("available") == 1, "the quota leaves one GPU to vm2")


def _scan(stage: Stage, *names: str, save: str, only: str | None = None) -> str:
    """Scan hosts over SSH and save a snapshot."""
    roots = {name: stage.directory / name for name in names}
    with ExampleSshServer(roots, stage.directory / "ssh"):
        return stage.run("gpustack", "scan", *names, *_SSH, "--save", save, "--each", only=only)


def _create(stage: Stage, name: str, gpus: int, *, code: int = 0, only: str = _NOTHING) -> str:
    """Boot an instance with some GPUs."""
    create = ("openstack", "server", "create", "--image", "image", "--no-network", "--flavor", f"k4200-{gpus}")
    return stage.run(*create, "--wait", name, code=code, only=only)


HOSTS = (first_spec, prepare, refusal)
CLOUD = (instance, recovery)
