"""The second half of the full demo: Nova, from its configuration to a GPU that a failed migration lost.

Nova is real: its API, scheduler, conductor and computes, Placement, Keystone and Glance come from PyPI and run on this
machine's loopback. Below it, libvirt is Nova's own test double, which has the PCI devices of the example hosts. Nova
boots from its test double of Glance, which has an image with the id of that in Glance.
"""

from __future__ import annotations

from gpustack_demo.embedded.nova import EmbeddedNova
from gpustack_demo.embedded.servers import settled
from gpustack_demo.examples.cloud import RELEASE
from gpustack_demo.examples.ssh_server import ExampleSshServer
from gpustack_demo.examples.stage import Stage, Surprise

_HOSTS = "hosts:\n  gpu01: [k4200]\n"
_MORE = """\
hosts:
  gpu01: [k4200]
  gpu04: [k4200]

nova: {{release: "{release}", vendordata: {directory}/vendordata.json}}

flavors:
  "k4200-{{count}}": {{model: k4200, count: [1, 2], vcpus: 4, ram: 16GiB, disk: 40GiB, images: [image]}}

quotas: {{default: {{k4200: 4}}}}
"""
_DROP_IN = "etc/nova/nova.conf.d/300-gpustack.conf"
_CREATE = ("openstack", "server", "create", "--image", "image", "--no-network", "-c", "name", "-c", "id")
_CLEANUP = ("--config-file", "cloud/nova.conf", "--grace", "0")
_SSH = ("--ssh-config", "ssh/config", "--known-hosts", "ssh/known_hosts")


def configuration(stage: Stage) -> None:
    """Nova's configuration from the same spec"""
    stage.report("gpu04 is a twin of gpu01. The spec now has the twin, the release of Nova, two flavors and a quota:")
    stage.host("talk_host", "gpu04")
    stage.edit("gpustack.yaml", (_HOSTS, _MORE.format(release=RELEASE, directory=stage.directory)))
    stage.excerpt("gpustack.yaml", "hosts:")
    stage.run("gpustack", "spec", "check", "gpustack.yaml")
    stage.inventory("gpu01", "gpu04")
    apply = ("gpustack", "host", "apply", "gpustack.yaml", "gpu04", "-i", "inventory.yaml", "--reboot", "--yes")
    stage.run(*apply, only="^gpu04")
    names = ("gpu01", "gpu04")
    with ExampleSshServer({name: stage.directory / name for name in names}, stage.directory / "ssh"):
        stage.run("gpustack", "scan", *names, *_SSH, "--save", "hosts.json")
    stage.report("Vendor data: a script with which the cloud-init of each guest checks its GPUs.")
    stage.run("gpustack", "guest", "vendordata", "gpustack.yaml", "--out", "vendordata.json")
    stage.run("gpustack", "nova", "render", "gpustack.yaml", "--snapshot", "hosts.json", "--out", "nova")
    stage.show(f"nova/gpu01/{_DROP_IN}")
    content = stage.show(f"nova/control/{_DROP_IN}")
    stage.check("PciPassthroughFilter" in content, "device_type fits the cards, and the list of filters is complete")


def real_nova(stage: Stage) -> None:
    """A real Nova reads it"""
    stage.report(
        f"From here on Nova {RELEASE} runs, with API, scheduler, conductor and a nova-compute for each host, "
        "Placement, Keystone, Glance and openstackclient from PyPI, on loopback and with the rendered files. Below "
        "Nova, libvirt is Nova's test double: an instance is a libvirt document, and the PCI devices are those of the "
        "scans."
    )
    stage.start_cloud("hosts.json", "nova")
    output = stage.run("openstack", "compute", "service", "list", "-c", "Binary", "-c", "Host", "-c", "State")
    stage.check(output.count("nova-compute") == 2, "both nova-compute services accept their configuration")
    output = stage.devices()
    stage.check(output.count("available") == 4, "Nova found the four GPUs, and neither an audio function nor a NIC")


def flavors(stage: Stage) -> None:
    """Flavors, quota, image"""
    stage.report(
        "Unified limits count GPUs by a marker class, which hosts provide and flavors request. So the hosts have got "
        "provider.yaml, then Keystone gets the limit, and then the flavors get the marker:"
    )
    stage.run("gpustack", "quota", "apply", "gpustack.yaml", "--yes")
    stage.report("The environment names the clouds.yaml of the embedded cloud. The plan:")
    stage.run("gpustack", "flavor", "plan", "gpustack.yaml", "--snapshot", "hosts.json")
    stage.run("gpustack", "flavor", "apply", "gpustack.yaml", "--snapshot", "hosts.json", "--yes")
    output = stage.run("gpustack", "flavor", "plan", "gpustack.yaml", "--snapshot", "hosts.json", "--exit-code")
    stage.check("0 to create" in output, "a second run has nothing to do")
    stage.run("gpustack", "flavor", "list", "--spec", "gpustack.yaml")
    stage.report("The image in Glance lacks properties that instances with GPUs need. One follows from the spec:")
    stage.run("gpustack", "image", "check", "gpustack.yaml")
    stage.run("gpustack", "image", "set", "gpustack.yaml", "image", "--yes", "--journal", "image.jsonl")
    output = stage.run("gpustack", "image", "check", "gpustack.yaml")
    stage.check("GPU818" not in output, "the machine type is set; the firmware is your decision")


def instances(stage: Stage) -> None:
    """Instances with their GPUs"""
    stage.report("Three instances: two with both GPUs of a host, and one above the quota of its project:")
    for name in ("vm1", "vm2"):
        _create(stage, name, "k4200-2")
    output = stage.run(*_CREATE, "--flavor", "k4200-1", "vm3", code=1)
    stage.check("is over limit of 4 due to current usage 4 and delta 1" in output, "nova-api refused vm3")
    stage.run("gpustack", "quota", "show")
    _servers(stage)
    output = stage.devices()
    stage.check(
        output.count("in vm1") == output.count("allocated to vm1") == 2,
        "vm1 has two GPUs, by their addresses, in Nova's database and in its libvirt domain",
    )
    stage.report("The metadata API of Nova gives vm1 the script. (The demo asks as Neutron's agent does.)")
    command = ("python", "-m", "gpustack_demo.examples.metadata", "cloud/demo.json", "vm1")
    stage.check("Made by gpustack" in stage.run(*command, only="^# "), "cloud-init of vm1 gets the check of its GPUs")
    stage.report("Who uses which GPU, as a list and as a web page with a map of the hosts and their topology:")
    config = ("--config-file", "cloud/nova.conf", "--snapshot", "hosts.json")
    output = stage.run("gpustack", "gpu", "list", *config)
    stage.check(output.count("vm1") == output.count("vm2") == 2, "the list names the instance of each GPU")
    stage.run("gpustack", "report", "--out", "report", *config, "--spec", "gpustack.yaml")
    page = (stage.directory / "report/index.html").read_text(encoding="utf-8")
    stage.check(page.count("allocated: vm1") == 2, "the map of report/index.html shows both GPUs of vm1")
    stage.run("openstack", "server", "delete", "--wait", "vm2")


def leak(stage: Stage) -> None:
    """A leak"""
    stage.report(
        "vm1 is migrated to the other host. As the migration is confirmed, libvirt on the old host fails after it has "
        "removed the instance. The demo makes libvirt fail in this one place; everything else is Nova."
    )
    nova = _nova(stage)
    with nova.connection() as cloud:
        source = cloud.compute.find_server("vm1", ignore_missing=False).compute_host
    stage.names["source"] = source
    stage.run("gpustack", "example", "leak", "vm1")
    output = stage.devices()
    stage.check(
        output.count("allocated to vm1") == 4 and output.count("in vm1") == 2,
        f"vm1 runs on the new host; {source} has no instance, and its two rows still belong to vm1",
    )
    stage.report("Neither a restart of nova-compute nor Nova's periodic tasks free the GPUs:")
    nova.control.restart_compute(source)
    nova.control.periodic()
    _create(stage, "vm4", "k4200-1")
    _servers(stage)
    stage.check(_no_valid_host(stage) == 1, "two GPUs are idle, and Nova finds no valid host")
    stage.run("openstack", "server", "delete", "--wait", "vm4")


def recovery(stage: Stage) -> None:
    """Found, explained, repaired"""
    source = stage.names["source"]
    stage.report(
        "The plan reads the databases that nova.conf names, and changes nothing. (--grace 0: by default, rows that "
        "changed within the last five minutes are ignored.)"
    )
    output = stage.run("gpustack", "cleanup", "plan", *_CLEANUP)
    stage.check(source in output and "report" in output, "the plan finds both rows, and why they are reported only")
    stage.report("vm1 stays where it runs. This is a decision for a person:")
    stage.run("openstack", "server", "set", "--state", "active", "--auto-approve", "vm1")
    output = stage.run("gpustack", "cleanup", "plan", *_CLEANUP)
    stage.check("fail-migration" in output, "now the leak is proved, and Nova itself completes the repair")
    stage.report(
        "apply checks it again and asks both hosts over SSH: no instance may use a device that becomes free. (A "
        "stand-in answers for the example hosts with the domains of the hypervisor.) Then it writes a journal and sets "
        "the migration to failed, and the periodic task of nova-compute frees both devices. That task runs every "
        "minute; here, every few seconds."
    )
    stage.run("gpustack", "cleanup", "apply", *_CLEANUP, *_SSH, "--yes", "--journal", "journal.jsonl")
    output = stage.devices()
    stage.check(output.count("available") == 2, f"the two GPUs of {source} are free again")
    output = stage.run("gpustack", "cleanup", "plan", *_CLEANUP, "--exit-code")
    stage.check("No stale rows" in output, "nothing is left to repair")
    stage.report("A new instance boots on them, and the old one keeps its own.")
    _create(stage, "vm5", "k4200-2")
    _servers(stage)
    output = stage.devices()
    stage.check(
        output.count("in vm5") == 2 and output.count("in vm1") == 2,
        "four GPUs, two instances, and each device in one of them",
    )


def _nova(stage: Stage) -> EmbeddedNova:
    if stage.nova is None:
        raise Surprise("Nova runs")
    return stage.nova


def _create(stage: Stage, name: str, flavor: str) -> None:
    stage.run(*_CREATE, "--flavor", flavor, name)
    with _nova(stage).connection() as cloud:
        settled(cloud, cloud.compute.find_server(name, ignore_missing=False))


def _servers(stage: Stage) -> None:
    stage.run(
        "openstack", "server", "list", "--long", *(w for c in ("Name", "Status", "Flavor", "Host") for w in ("-c", c))
    )


def _no_valid_host(stage: Stage) -> int:
    """The number of instances so far for which Nova found no valid host."""
    output = stage.run("grep", "-o", "Failed to compute_task_build_instances: .*", "cloud/nova.log")
    return output.count("No valid host was found")


CHAPTERS = (configuration, real_nova, flavors, instances, leak, recovery)
