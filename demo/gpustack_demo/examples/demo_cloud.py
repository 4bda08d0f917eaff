"""The second half of the demo: Nova, from its configuration to a GPU that a failed migration has lost and found again.

Nova is real: its API, scheduler, conductor and computes, Placement and Keystone come from PyPI and run on this
machine's loopback. Below it, libvirt is Nova's own test double, which has the PCI devices of the example hosts.
"""

from __future__ import annotations

from gpustack_demo.embedded.nova import Nova
from gpustack_demo.embedded.servers import settled, until
from gpustack_demo.examples.cloud import RELEASE, answer_over_ssh, repeatedly, start_nova
from gpustack_demo.examples.stage import Stage, Surprise

_HOSTS = "hosts:\n  gpu01: [k4200]\n"
_MORE = f"""\
hosts:
  gpu01: [k4200]
  gpu04: [k4200]

nova: {{release: "{RELEASE}"}}

flavors:
  "k4200-{{count}}": {{model: k4200, count: [1, 2], vcpus: 4, ram: 16GiB, disk: 40GiB}}
"""
_DROP_IN = "etc/nova/nova.conf.d/300-gpustack.conf"
_GUEST = ("openstack", "server", "create", "--image", "image", "--no-network", "-c", "name", "-c", "id")
_CLEANUP = ("--config-file", "cloud/nova.conf", "--grace", "0")


def configuration(stage: Stage) -> None:
    """Nova's configuration, out of the same spec"""
    stage.say(
        "gpu04 is a twin of gpu01, and is prepared as gpu01 was. Then the facts of both go into one snapshot: scan "
        "reads many hosts at once over SSH; directories it reads one at a time, so the demo puts them together."
    )
    stage.host("talk_host", "gpu04")
    stage.edit("gpustack.yaml", (_HOSTS, _MORE))
    stage.inventory("gpu04")
    stage.play("prepare", "-e", "gpustack_reboot=true", last=3)
    for name in ("gpu01", "gpu04"):
        stage.run("gpustack", "scan", "--root", name, "--save", f"{name}.json")
    stage.join("hosts.json", "gpu01.json", "gpu04.json")
    stage.say("The spec now names the twin, Nova's release, and two flavors:")
    stage.excerpt("gpustack.yaml", "hosts:")
    stage.run("gpustack", "spec", "check", "gpustack.yaml")
    stage.run("gpustack", "nova", "render", "gpustack.yaml", "--snapshot", "hosts.json", "--out", "nova")
    stage.show(f"nova/gpu01/{_DROP_IN}")
    said = stage.show(f"nova/control/{_DROP_IN}")
    stage.check("PciPassthroughFilter" in said, "device_type is what the cards are, and the filter list is whole")


def a_real_nova(stage: Stage) -> None:
    """A real Nova reads it"""
    stage.say(
        f"What comes now is real: Nova {RELEASE} with API, scheduler, conductor and a nova-compute for each host, "
        "Placement, Keystone and openstackclient, as PyPI has them. They run on the loopback of this machine, with the "
        "files that were just rendered. What is not real is below Nova: libvirt is Nova's own test double, so a guest "
        "is a libvirt document and not a machine, and the PCI devices of its host are those of the scans."
    )
    start_nova(stage, snapshot="hosts.json", rendered="nova")
    said = stage.run("openstack", "compute", "service", "list", "-c", "Binary", "-c", "Host", "-c", "State")
    stage.check(said.count("nova-compute") == 2, "both nova-computes took their configuration")
    said = _devices(stage)
    stage.check(said.count("available") == 4, "Nova found the four GPUs, and neither an audio function nor a NIC")


def flavors(stage: Stage) -> None:
    """Flavors"""
    stage.say("The clouds.yaml of the embedded cloud is set in the environment. What would be done:")
    stage.run("gpustack", "flavor", "plan", "gpustack.yaml", "--snapshot", "hosts.json")
    stage.run("gpustack", "flavor", "apply", "gpustack.yaml", "--snapshot", "hosts.json", "--yes")
    said = stage.run("gpustack", "flavor", "plan", "gpustack.yaml", "--snapshot", "hosts.json", "--exit-code")
    stage.check("0 to create" in said, "a second run has nothing to do")
    stage.run("gpustack", "flavor", "list", "--spec", "gpustack.yaml")


def a_guest(stage: Stage) -> None:
    """Guests with their GPUs"""
    stage.say("A guest with both GPUs of a host, a second one on the other host, and one more than there are GPUs:")
    for name, flavor in (("vm1", "k4200-2"), ("vm2", "k4200-2"), ("vm3", "k4200-1")):
        _create(stage, name, flavor)
    _servers(stage)
    said = _devices(stage)
    stage.check(
        said.count("in vm1") == said.count("allocated to vm1") == 2,
        "vm1 has two GPUs, by their addresses, in Nova's books and in its libvirt domain",
    )
    stage.check(_refused(stage) == 1, "and the one too many was refused")
    stage.run("openstack", "server", "delete", "--wait", "vm2", "vm3")


def the_leak(stage: Stage) -> None:
    """The talk's leak"""
    nova = _nova(stage)
    with nova.connection() as cloud:
        source, target = ("gpu01", "gpu04")
        if cloud.compute.find_server("vm1", ignore_missing=False).compute_host == target:
            source, target = target, source
    stage.names.update(old=source, new=target)
    stage.say(
        f"vm1 is moved from {source} to {target}. The copy succeeds; then, as the move is confirmed, libvirt on "
        f"{source} dies after it has removed the old guest. The demo makes libvirt fail in that one place. All that "
        "follows is Nova's own doing."
    )
    stage.run("openstack", "server", "migrate", "--host", target, "vm1")
    _settle(stage, "vm1")
    nova.control.fail(source, "confirm", when="after", error="builtins.ConnectionResetError", message="libvirt is gone")
    stage.run("openstack", "server", "migration", "confirm", "vm1")
    _settle(stage, "vm1", status="ERROR")
    nova.control.clear_faults(source)
    nova.control.periodic()
    said = _devices(stage)
    stage.check(
        said.count("allocated to vm1") == 4 and said.count("in vm1") == 2,
        f"vm1 runs on {target}; {source} has no guest any more, and its two rows are still vm1's",
    )
    stage.say(
        "The talk's way out was to delete the rows by hand and to reboot the old host. A restart of its nova-compute "
        "does not bring the GPUs back, and Nova's periodic task keeps the rows as they are:"
    )
    nova.control.restart_compute(source)
    nova.control.periodic()
    _create(stage, "vm4", "k4200-1")
    _servers(stage)
    stage.check(_refused(stage) == 2, "two GPUs are idle, and Nova has none to give")
    stage.run("openstack", "server", "delete", "--wait", "vm4")


def found(stage: Stage) -> None:
    """Found, explained, repaired"""
    old = stage.names["old"]
    stage.say(
        "The plan reads the databases that nova.conf leads to, and changes nothing. (--grace 0: usually it takes "
        "nothing for stale that changed within the last five minutes.)"
    )
    said = stage.run("gpustack", "cleanup", "plan", *_CLEANUP)
    stage.check(old in said and "report" in said, "it finds both rows, and says why it does not touch them yet")
    stage.say("vm1 runs where it is, and is to stay there. That is a decision, and it is ours:")
    stage.run("openstack", "server", "set", "--state", "active", "--auto-approve", "vm1")
    said = stage.run("gpustack", "cleanup", "plan", *_CLEANUP)
    stage.check(
        "fail-migration" in said, "now the leak is proved, and the repair is the one that Nova itself completes"
    )
    stage.say(
        "apply checks it again and asks both hosts over SSH: no instance may use a device that becomes free. (A "
        "stand-in answers for the example hosts with the domains of the hypervisor.) Then it writes a journal and sets "
        "the migration to failed, and the periodic task of nova-compute frees both devices. That task runs every "
        "minute; here, every second while apply waits for it."
    )
    ssh = answer_over_ssh(stage)
    with repeatedly(1, _nova(stage).control.periodic):  # Nova's own does it every minute
        stage.run("gpustack", "cleanup", "apply", *_CLEANUP, *ssh, "--yes", "--journal", "journal.jsonl")
    said = _devices(stage)
    stage.check(said.count("available") == 2, f"the two GPUs of {old} are free again")
    said = stage.run("gpustack", "cleanup", "plan", *_CLEANUP, "--exit-code")
    stage.check("No stale rows" in said, "and there is nothing left to repair")
    stage.say("Nova agrees: a new guest boots on them, and the old one keeps its own.")
    _create(stage, "vm5", "k4200-2")
    _servers(stage)
    said = _devices(stage)
    stage.check(
        said.count("in vm5") == 2 and said.count("in vm1") == 2, "four GPUs, two guests, and each device in one of them"
    )


def _nova(stage: Stage) -> Nova:
    if stage.nova is None:
        raise Surprise("Nova runs")
    return stage.nova


def _create(stage: Stage, name: str, flavor: str) -> None:
    stage.run(*_GUEST, "--flavor", flavor, name)
    _settle(stage, name)


def _settle(stage: Stage, name: str, status: str | None = None) -> None:
    """Wait until nothing is being done to a guest any more."""
    nova = _nova(stage)
    with nova.connection() as cloud:
        server = cloud.compute.find_server(name, ignore_missing=False)
        if status is None:
            settled(cloud, server)
        else:
            until(cloud, server, lambda one: one.status == status and one.task_state is None)


def _servers(stage: Stage) -> None:
    stage.run(
        "openstack", "server", "list", "--long", *(w for c in ("Name", "Status", "Flavor", "Host") for w in ("-c", c))
    )


def _refused(stage: Stage) -> int:
    """How many guests Nova has found no host for so far."""
    said = stage.run("grep", "-o", "Failed to compute_task_build_instances: .*", "cloud/nova.log")
    return said.count("No valid host was found")


def _devices(stage: Stage) -> str:
    return stage.run("python", "-m", "gpustack_demo.examples.devices", "cloud/demo.json")


CHAPTERS = (configuration, a_real_nova, flavors, a_guest, the_leak, found)
