"""The first half of the full demo: example hosts, prepared with gpustack's playbooks."""

from __future__ import annotations

from gpustack.base.files import collection_dir
from gpustack.base.findings import Code
from gpustack_demo.examples.stage import Stage


def existing_host(stage: Stage) -> None:
    """A host as it is"""
    stage.report(
        "gpu01 is the host of the talk 'GPU on OpenStack': two Quadro K4200, each with its HDMI audio as a second "
        "function. It is a directory that looks like the / of such a host. Which GPUs does it have, and can an "
        "instance use them?"
    )
    stage.host("talk_host", "gpu01")
    output = stage.run("gpustack", "scan", "--root", "gpu01", "--save", "before.json")
    stage.check("nouveau, snd_hda_intel" in output, "host drivers hold both functions of both cards")
    stage.check(
        Code.BOUND_TO_HOST_DRIVER in output, "so no instance can use them; a finding has the cause and a remedy"
    )
    stage.report("The snapshot before.json is enough to compute the next steps, on any machine and without the host.")


def first_spec(stage: Stage) -> None:
    """A first spec"""
    stage.report("One file declares which GPUs instances get. A scan is enough for its first version.")
    stage.run("gpustack", "spec", "init", "--snapshot", "before.json", into="gpustack.yaml")
    stage.show("gpustack.yaml")
    stage.run("gpustack", "spec", "check", "gpustack.yaml")
    stage.report("One run reports all mistakes, each with its place and the likely key:")
    stage.write(
        "wrong.yaml",
        'version: 1\nmodels:\n  k4200: {match: {vendor: "10de", produkt: "11b4"}}\nhosts:\n  gpu01: [k420]\n',
    )
    output = stage.run("gpustack", "spec", "check", "wrong.yaml", code=10)
    stage.check("product" in output and "k4200" in output, "every mistake in one run")


def the_plan(stage: Stage) -> None:
    """The plan"""
    stage.report(
        "The plan compares the spec with the facts: which files, which commands, whether a reboot, and why. --no-diff "
        "leaves out the content of the files, which the dry run shows."
    )
    output = stage.run("gpustack", "host", "plan", "gpustack.yaml", "--snapshot", "before.json", "--no-diff")
    stage.check("with 0000:88:00.1" in output, "the audio functions are included: an instance needs the complete slot")
    stage.check(
        "6.1.0-37-amd64" in output and "6.1.0-40-amd64" in output,
        "the initramfs of every kernel that can boot is rebuilt",
    )


def dry_run(stage: Stage) -> None:
    """A dry run with Ansible"""
    stage.report(
        "The playbooks carry out this plan. In the inventory of the demo the hosts are directories; real hosts need "
        "none of these variables."
    )
    stage.inventory("gpu01")
    stage.show("inventory.yaml")
    before = stage.state("gpu01")
    output = _play(stage, "prepare", "--check", "--diff")
    stage.check(
        "+++ after: /etc/modprobe.d/gpustack.conf" in output, "the dry run shows every file that it would write"
    )
    stage.check(stage.state("gpu01") == before, "the host is unchanged: content, modes and times")


def prepared(stage: Stage) -> None:
    """Prepared, rebooted, verified"""
    stage.report(
        "With gpustack_reboot=true the host is rebooted and then verified. The boot is a stand-in: it reads the boot "
        "menu and the initramfs that were just built, and loads modules and binds functions as the kernel would."
    )
    output = _play(stage, "prepare", "-e", "gpustack_reboot=true")
    stage.check("gpu01: ready," in output, "after the boot every function is on vfio-pci")
    stage.report("verify.yml checks it again at any time, and changes nothing:")
    _play(stage, "verify")
    stage.report("A second run of prepare.yml has nothing to do, and does not reboot:")
    output = _play(stage, "prepare", "-e", "gpustack_reboot=true")
    stage.check("changed=0" in output, "nothing changed")
    output = stage.run("gpustack", "scan", "--root", "gpu01")
    stage.check(output.count(" yes ") == 2, "both GPUs are ready")


def refused_host(stage: Stage) -> None:
    """A host that is refused"""
    stage.report(
        "gpu03 has one card, behind a bridge that does not isolate it: the card shares its IOMMU group with the "
        "network card in use. Passing the card through would take the host off the network."
    )
    output = _refused_plan(stage, "shared_group_host", "gpu03")
    stage.check("0000:66:00.0" in output and "enp102s0" in output, "the plan refuses, and names the network card")
    stage.inventory("gpu03")
    before = stage.state("gpu03")
    _play(stage, "prepare", "-e", "gpustack_reboot=true", spec="gpu03.yaml", code=2)
    stage.check(stage.state("gpu03") == before, "the playbook leaves the host unchanged")


def nvswitches(stage: Stage) -> None:
    """Eight GPUs and four NVSwitches"""
    stage.report(
        "gpu02 has eight H100 and the four NVSwitches that join them. Whether instances get the switches is a decision "
        "for a person, so without it the plan refuses."
    )
    output = _refused_plan(stage, "nvswitch_host", "gpu02")
    stage.check("options.nvswitch" in output, "the plan refuses, and names the option to set")
    stage.report("The spec contains the option as a comment. One instance gets all of them:")
    stage.edit("gpu02.yaml", ("    # options:\n    #   nvswitch: full", "    options:\n      nvswitch: full"))
    stage.excerpt("gpu02.yaml", "  gpu02:")
    stage.inventory("gpu02")
    output = _play(stage, "prepare", "-e", "gpustack_reboot=true", spec="gpu02.yaml")
    stage.check("gpu02: ready," in output, "eight GPUs and four switches are on vfio-pci")


def _refused_plan(stage: Stage, kind: str, name: str) -> str:
    """Scan an example host, write its first spec, and plan."""
    snapshot, spec = f"{name}.json", f"{name}.yaml"
    stage.host(kind, name)
    stage.run("gpustack", "scan", "--root", name, "--save", snapshot)
    stage.run("gpustack", "spec", "init", "--snapshot", snapshot, into=spec)
    return stage.run("gpustack", "host", "plan", spec, "--snapshot", snapshot, code=13)


def _play(stage: Stage, playbook: str, *arguments: str, spec: str = "gpustack.yaml", code: int = 0) -> str:
    """Run a playbook on the hosts of the inventory."""
    path = str(collection_dir() / "playbooks" / f"{playbook}.yml")
    return stage.run(
        "ansible-playbook", "-i", "inventory.yaml", path, "-e", f"gpustack_spec={spec}", *arguments, code=code
    )


CHAPTERS = (existing_host, first_spec, the_plan, dry_run, prepared, refused_host, nvswitches)
