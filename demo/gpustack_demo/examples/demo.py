"""``python -m gpustack_demo.examples.demo``: the whole path on example hosts, with the real commands.

Every command is printed, run as a process of its own, and held to what the text around it says: when something is
not as said, the demo ends with exit code 1. Nothing outside the temporary directory is changed, and no root rights
are needed: the hosts are directories, and stand-ins play update-grub, update-initramfs and the boot on them. The
second half (:mod:`gpustack_demo.examples.demo_cloud`) runs a real Nova, which is installed from PyPI if it is missing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from gpustack.codes import Code
from gpustack.errors import GpustackError
from gpustack_demo.examples import demo_cloud
from gpustack_demo.examples.cloud import NotInstalledError
from gpustack_demo.examples.stage import Stage, Surprise

Chapter = Callable[[Stage], None]


def a_host_as_it_is(stage: Stage) -> None:
    """A host as it is"""
    stage.say(
        "gpu01 is the host of the talk 'GPU on OpenStack': two Quadro K4200, and each card has a second function, its "
        "HDMI audio. It is a directory that looks like such a host's /. First: what is there, and could a guest have "
        "it?"
    )
    stage.host("talk_host", "gpu01")
    seen = stage.run("gpustack", "scan", "--root", "gpu01", "--save", "gpu01.json")
    stage.check("nouveau, snd_hda_intel" in seen, "both functions of both cards are in the hands of host drivers")
    stage.check(
        Code.BOUND_TO_HOST_DRIVER in seen, "so no guest can have them, and a finding with a code and a remedy says why"
    )
    stage.say(
        "The scan was saved as a snapshot. Everything from here on could be computed from that file, on another "
        "machine, without the host."
    )


def a_first_spec(stage: Stage) -> None:
    """A first spec"""
    stage.say("What is wanted is said in one file. A scan is enough for a first version of it.")
    stage.run("gpustack", "spec", "init", "--snapshot", "gpu01.json", into="gpustack.yaml")
    stage.show("gpustack.yaml")
    stage.run("gpustack", "spec", "check", "gpustack.yaml")
    stage.say("Mistakes are told all at once, with their place and the likely word:")
    stage.write(
        "wrong.yaml",
        'version: 1\nmodels:\n  k4200: {match: {vendor: "10de", produkt: "11b4"}}\nhosts:\n  gpu01: [k420]\n',
    )
    said = stage.run("gpustack", "spec", "check", "wrong.yaml", code=10)
    stage.check("product" in said and "k4200" in said, "every mistake in one run")


def the_plan(stage: Stage) -> None:
    """The plan"""
    stage.say(
        "Spec and facts make the plan: which files, which commands, whether a reboot, and why. --no-diff leaves out "
        "the files' content; it is shown in a moment."
    )
    said = stage.run("gpustack", "host", "plan", "gpustack.yaml", "--snapshot", "gpu01.json", "--no-diff")
    stage.check("with 0000:88:00.1" in said, "the audio functions go along: a guest needs the whole slot")
    stage.check(
        "6.1.0-37-amd64" in said and "6.1.0-40-amd64" in said, "the initramfs of every kernel that can boot is rebuilt"
    )


def a_dry_run(stage: Stage) -> None:
    """Ansible, dry"""
    stage.say(
        "The playbooks carry out that very plan. In the inventory of the demo the hosts are directories; for real "
        "hosts none of these variables is needed."
    )
    stage.inventory("gpu01")
    stage.show("inventory.yaml")
    before = stage.state("gpu01")
    said = stage.play("prepare", "--check", "--diff")
    stage.check("+++ after: /etc/modprobe.d/gpustack.conf" in said, "the dry run showed every file it would write")
    stage.check(stage.state("gpu01") == before, "and left the host as it was, to the byte and the time stamp")


def prepared(stage: Stage) -> None:
    """Prepared, rebooted, proved"""
    stage.say(
        "Now for real. The host may be rebooted, since we say so, and is verified after that. The boot is a stand-in: "
        "it reads the boot menu and the initramfs that were just built, and loads modules and binds functions as the "
        "kernel would."
    )
    said = stage.play("prepare", "-e", "gpustack_reboot=true")
    stage.check("gpu01: ready," in said, "the host came up with every function on vfio-pci")
    stage.say("verify.yml proves it again at any time, and changes nothing:")
    stage.play("verify")
    stage.say("A second run of prepare.yml finds nothing to do, and so does not reboot:")
    said = stage.play("prepare", "-e", "gpustack_reboot=true")
    stage.check("changed=0" in said, "nothing changed")
    said = stage.run("gpustack", "scan", "--root", "gpu01")
    stage.check(said.count(" yes ") == 2, "both GPUs are ready")


def a_host_that_cannot(stage: Stage) -> None:
    """A host that can't, and says so"""
    stage.say(
        "gpu03 has one card, behind a bridge that does not isolate it: the card shares its IOMMU group with the "
        "network card in use. Whoever gives that card to a guest takes the host off the network."
    )
    stage.host("shared_group_host", "gpu03")
    stage.run("gpustack", "scan", "--root", "gpu03", "--save", "gpu03.json")
    stage.run("gpustack", "spec", "init", "--snapshot", "gpu03.json", into="gpu03.yaml")
    said = stage.run("gpustack", "host", "plan", "gpu03.yaml", "--snapshot", "gpu03.json", code=13)
    stage.check("0000:66:00.0" in said and "enp102s0" in said, "the plan refuses, and names the culprit")
    stage.inventory("gpu03")
    before = stage.state("gpu03")
    stage.play("prepare", "-e", "gpustack_reboot=true", spec="gpu03.yaml", code=2)
    stage.check(stage.state("gpu03") == before, "and the playbook leaves the host alone")


def nvswitches(stage: Stage) -> None:
    """Eight GPUs and four NVSwitches"""
    stage.say(
        "gpu02 has eight H100 and the four NVSwitches that join them. What becomes of the switches is a decision that "
        "nobody can guess, so without it the plan refuses."
    )
    stage.host("nvswitch_host", "gpu02")
    stage.run("gpustack", "scan", "--root", "gpu02", "--save", "gpu02.json")
    stage.run("gpustack", "spec", "init", "--snapshot", "gpu02.json", into="gpu02.yaml")
    said = stage.run("gpustack", "host", "plan", "gpu02.yaml", "--snapshot", "gpu02.json", code=13)
    stage.check("options.nvswitch" in said, "it refuses, and says what to decide")
    stage.say("The spec that was written has the answer as a comment. All of it is for one guest:")
    stage.edit("gpu02.yaml", ("    # options:\n    #   nvswitch: full", "    options:\n      nvswitch: full"))
    stage.excerpt("gpu02.yaml", "  gpu02:")
    stage.inventory("gpu02")
    said = stage.play("prepare", "-e", "gpustack_reboot=true", spec="gpu02.yaml")
    stage.check("gpu02: ready," in said, "eight GPUs and four switches are on vfio-pci")


CHAPTERS: tuple[Chapter, ...] = (
    a_host_as_it_is,
    a_first_spec,
    the_plan,
    a_dry_run,
    prepared,
    a_host_that_cannot,
    nvswitches,
    *demo_cloud.CHAPTERS,
)

_WITHOUT_NOVA = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; answers its exit code."""
    parser = argparse.ArgumentParser(prog="gpustack_demo.examples.demo", description=main.__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the directory with the hosts, to look around in")
    options = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="gpustack-demo-"))
    with Stage(directory) as stage:
        return _play(stage, keep=options.keep)


def _play(stage: Stage, *, keep: bool) -> int:
    try:
        for number, chapter in enumerate(CHAPTERS, start=1):
            stage.title(f"{number}. {chapter.__doc__}")
            chapter(stage)
    except NotInstalledError as error:
        print(
            f"\nAs far as here, all went as told. The rest needs a real Nova, and there is none:\n{error}",
            file=sys.stderr,
        )
        print("Then run the demo again; the hosts of this run are in", stage.directory, file=sys.stderr)
        return _WITHOUT_NOVA
    except (Surprise, GpustackError) as surprise:
        print(f"\nThe demo did not go as told: {surprise}\nLook around in {stage.directory}", file=sys.stderr)
        return 1
    stage.title("All of it went as told")
    if keep:
        stage.say(f"The hosts and the logs of Nova are in {stage.directory}.")
    else:
        shutil.rmtree(stage.directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
