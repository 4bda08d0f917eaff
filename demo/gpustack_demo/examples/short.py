"""The demo: from two hosts as they are to a lost GPU that is recovered, a few lines for each step."""

from __future__ import annotations

from gpustack.codes import Code
from gpustack_demo.examples.cloud import RELEASE
from gpustack_demo.examples.ssh_server import ExampleSshServer
from gpustack_demo.examples.stage import Stage

_SSH = ("--ssh-config", "ssh/config", "--known-hosts", "ssh/known_hosts")
_CLEANUP = ("--config-file", "cloud/nova.conf", "--grace", "0")
_FLAVORS = f"""
nova: {{release: "{RELEASE}"}}
flavors:
  "k4200-{{count}}": {{model: k4200, count: [1, 2], vcpus: 4, ram: 16GiB, disk: 40GiB}}
"""
_LIST = tuple(word for name in ("Host", "Address", "State", "Instance", "Flavor") for word in ("-c", name))
_PLAN = ("gpustack", "host", "plan")
_NOTHING = "$^"


def first_spec(stage: Stage) -> None:
    """Scan two hosts, and declare which GPUs instances get"""
    for kind, name in (("talk_host", "gpu01"), ("shared_group_host", "gpu03"), ("talk_host", "gpu04")):
        stage.host(kind, name)
    output = _scan(stage, "gpu01", "gpu04", save="before.json", only=r"^\| ")
    stage.expect(output.count("nouveau") >= 4, "host drivers hold all four GPUs")
    stage.run("gpustack", "spec", "init", "--snapshot", "before.json", into="gpustack.yaml")
    stage.append("gpustack.yaml", _FLAVORS)
    stage.run("grep", "-E", "match:|^  gpu", "gpustack.yaml")


def prepare(stage: Stage) -> None:
    """Show every change, make it, verify it"""
    stage.inventory("gpu01", "gpu04")
    stage.run(*_PLAN, "gpustack.yaml", "gpu01", "--snapshot", "before.json", only=r"^gpu|^    \d\. ")
    apply = ("gpustack", "host", "apply", "gpustack.yaml", "-i", "inventory.yaml", "--serial", "2", "--reboot", "--yes")
    stage.run(*apply, only="^gpu.*done")
    verify = ("gpustack", "host", "verify", "gpustack.yaml", "gpu01", "-i", "inventory.yaml")
    output = stage.run(*verify, only="^gpu.*ready")
    stage.expect("ready, 2 GPUs" in output, "after the reboot every function is on vfio-pci")


def refusal(stage: Stage) -> None:
    """A host that passthrough would take off the network is refused"""
    _scan(stage, "gpu03", save="gpu03.json")
    stage.run("gpustack", "spec", "init", "--snapshot", "gpu03.json", into="gpu03.yaml", only=None)
    output = stage.run(*_PLAN, "gpu03.yaml", "--snapshot", "gpu03.json", code=13, only=rf"^gpu03|{Code.GROUP_IN_USE}")
    stage.expect("enp102s0" in output, "the plan names the network card")


def instance(stage: Stage) -> None:
    """Configure and start a real Nova, create flavors, boot an instance with two GPUs"""
    _scan(stage, "gpu01", "gpu04", save="hosts.json")
    stage.run("gpustack", "nova", "render", "gpustack.yaml", "--snapshot", "hosts.json", "--out", "nova", only=_NOTHING)
    stage.run("cat", "nova/gpu01/etc/nova/nova.conf.d/300-gpustack.conf", only="^(alias|device)")
    stage.start_cloud("hosts.json", "nova")
    stage.run("gpustack", "flavor", "apply", "gpustack.yaml", "--snapshot", "hosts.json", "--yes", only="^create")
    _create(stage, "vm1")
    stage.expect(stage.devices(only=None).count("in vm1") == 2, "vm1 has two GPUs")
    output = stage.run("gpustack", "gpu", "list", "--config-file", "cloud/nova.conf", *_LIST, only="Host|vm1")
    held = [line for line in output.splitlines() if "vm1" in line]
    stage.expect(len(held) == 2, "the list shows vm1 on two GPUs")
    stage.names["source"] = held[0].split()[1]


def recovery(stage: Stage) -> None:
    """Lose both GPUs in a failed migration; find, prove and repair the leak"""
    source = stage.names["source"]
    stage.run("gpustack", "example", "leak", "vm1")
    output = stage.devices(only=f"Host|{source}")
    stage.expect(output.count("allocated to vm1") == 4, "Nova's rows allocate four GPUs to vm1, which has two")
    stage.run("openstack", "server", "set", "--state", "active", "--auto-approve", "vm1")
    stage.run("gpustack", "cleanup", "plan", *_CLEANUP, only="^class|∴")
    apply = ("gpustack", "cleanup", "apply", *_CLEANUP, *_SSH, "--yes", "--journal", "journal.jsonl")
    stage.run(*apply, only="^repaired|cleanup undo")
    _create(stage, "vm2")
    output = stage.devices(only=source)
    stage.expect(output.count("in vm1") == output.count("in vm2") == 2, "each instance has two GPUs of its own")


def _scan(stage: Stage, *names: str, save: str, only: str | None = None) -> str:
    """Scan hosts over SSH and save a snapshot."""
    roots = {name: stage.directory / name for name in names}
    with ExampleSshServer(roots, stage.directory / "ssh"):
        return stage.run("gpustack", "scan", *names, *_SSH, "--save", save, only=only)


def _create(stage: Stage, name: str) -> None:
    create = (
        "openstack",
        "server",
        "create",
        "--image",
        "image",
        "--no-network",
        "--flavor",
        "k4200-2",
        "--wait",
        name,
    )
    stage.run(*create, only=_NOTHING)


HOSTS = (first_spec, prepare, refusal)
CLOUD = (instance, recovery)
