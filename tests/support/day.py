"""The day of a user, as steps: commands of the documentation, and a few that a page describes without printing them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from support.pages import DOCS, Printed, blocks

TUTORIAL = "tutorial/first-host.md"
INSTALL, UPGRADE, UNINSTALL = "howto/install.md", "howto/upgrade.md", "howto/uninstall.md"
HOSTS = ("gpustack.yaml gpu01", "gpustack.yaml gpu01 -i inventory.yaml")
"""The example hosts are in an inventory of the current directory, which the pages leave out for real hosts."""
YES = ("--reboot", "--reboot --yes")
"""There is no terminal for the confirmation."""
CLOUD = (" --os-cloud admin", "")
"""`gpustack example cloud` prints OS_CLOUD."""


@dataclass(frozen=True)
class ByHand:
    """A command that no page prints, and the reason."""

    why: str
    command: str
    shows: tuple[str, ...] = ()

    def commands(self) -> list[tuple[str, int]]:
        """The command and its exit code."""
        return [(self.command, 0)]


Step = Printed | ByHand


def uninstall(flavor: str) -> tuple[Step, ...]:
    """Restore the host and remove gpustack; ``flavor`` is one that gpustack still manages, or empty."""
    flavors = Printed(
        UNINSTALL,
        "Uninstall",
        only=("gpustack flavor",),
        put=(CLOUD, ("delete NAME", f"delete {flavor} --yes")),
        shows=(rf"delete {flavor}\b",),
    )
    return (
        *((flavors,) if flavor else ()),
        Printed(
            UNINSTALL,
            "Uninstall",
            only=("gpustack host undo",),
            put=(("gpu01", "gpu01 -i inventory.yaml"), YES),
            shows=(r"gpu01: would change", r"gpu01: done \(.*rebooted"),
        ),
        Printed(
            "howto/undo.md",
            "Undo: restore a host",
            only=("gpustack host undo gpu01 --check",),
            put=_INVENTORY,
            shows=(r"gpu01: nothing to do",),
        ),
    )


_INVENTORY = (("gpu01", "gpu01 -i inventory.yaml"),)
REMOVE: tuple[Step, ...] = (
    Printed(UNINSTALL, "Uninstall", only=("rm -rf",)),
    ByHand("the user's own files, unpacked before", "rm -r nova-gpustack-*-offline"),
)
FORGET: tuple[Step, ...] = (Printed(UNINSTALL, "Uninstall", only=("rm -r ~/.local",)),)

ONLINE: tuple[Step, ...] = (
    Printed(INSTALL, "Install without network"),
    Printed(INSTALL, "Try it without network", only=("pip install", "cd", "pip download")),
)
"""On the machine with network, for the cache of Nova's packages."""

DAY: tuple[Step, ...] = (
    Printed(INSTALL, "Install without network", shows=(r"ok +Ansible", r"ok +SSH client")),
    Printed(
        INSTALL,
        "Install the collection by itself",
        only=("ansible-galaxy",),
        put=(("nova_gpustack-passthrough", "nova-gpustack-*-offline/nova_gpustack-passthrough"),),
        shows=(r"nova_gpustack.passthrough:\S+ was installed successfully",),
    ),
    Printed(INSTALL, "Try it without network", only=("pip install", "export")),
    Printed(TUTORIAL, "Your first host", only=("gpustack example create", "cd")),
    Printed(TUTORIAL, "Scan the host", shows=(r"gpu01 .*GPU010",)),
    Printed(TUTORIAL, "Write a first spec", shows=(r"valid, 1 model, 1 host pattern",)),
    Printed(TUTORIAL, "Read the plan", shows=(r"90-gpustack\.cfg", r"reboot")),
    Printed(
        TUTORIAL,
        "Apply and verify",
        put=(YES,),
        shows=(r"gpu01: would change", r"gpu01: done \(.*rebooted, verified\)", r"gpu01: ready, 2 GPUs"),
    ),
    Printed(TUTORIAL, "See why a host is refused", codes={"gpustack host plan": 13}, shows=(r"enp102s0",)),
    ByHand(
        "the editor: the spec of the tutorial with its second host, Nova and flavors",
        "sed -i '/^hosts:/,$d' gpustack.yaml && cat >>gpustack.yaml <<'END'\n"
        + "".join(blocks(DOCS / TUTORIAL, "Boot an instance with GPUs", "yaml"))
        + "END",
    ),
    # The second host with Ansible itself; the tutorial's command then finds nothing to do.
    Printed(
        "howto/prepare-a-host.md",
        "Use your own Ansible",
        put=(("-i inventory", "-i inventory.yaml --limit gpu04"),),
        shows=(r"(?s)gpu04 +: ok=\d+ +changed=[1-9].*failed=0.*gpu04 +: ok=\d+ +changed=0.*failed=0",),
    ),
    Printed(
        TUTORIAL,
        "Boot an instance with GPUs",
        only=("gpustack host apply", "gpustack scan", "gpustack nova render"),
        put=(YES,),
        shows=(r"gpu04: nothing to do", r"gpu01, gpu04 .*vfio-pci"),
    ),
    Printed(
        "howto/nova-drop-in.md",
        "Check",
        only=("gpustack nova lint rendered",),
        put=(("rendered", "nova"),),
    ),
    Printed(
        TUTORIAL,
        "Boot an instance with GPUs",
        only=("gpustack example cloud",),
        put=(("cloud", "cloud >cloud.log 2>&1 &"),),
    ),
    ByHand(
        "the second terminal: the lines that the first one printed",
        "until grep -q Ctrl-C cloud.log; do kill -0 $! || { cat cloud.log; return 1; }; sleep 1; done\n"
        'cat cloud.log; eval "$(grep ^export cloud.log)"',
        shows=(r"OpenStack 2025\.2: installed in",),
    ),
    Printed(
        TUTORIAL,
        "Boot an instance with GPUs",
        only=("gpustack flavor", "openstack server create"),
        put=(("flavor apply gpustack.yaml", "flavor apply gpustack.yaml --yes"),),
        shows=(r"2 to create", r"\| status +\| ACTIVE"),
    ),
    Printed(
        TUTORIAL,
        "Recover lost GPUs",
        put=(("cleanup apply", "cleanup apply --yes"),),
        shows=(r"vm1 runs on gpu0\d\. libvirt failed on gpu0\d", r": done: ", r"\| status +\| ACTIVE"),
    ),
    Printed("howto/see-who-uses-what.md", "List GPUs", only=("gpustack gpu list$",), shows=(r"vm1", r"vm2")),
    Printed("howto/report.md", "Show the fleet as a web page", shows=(r"report/index\.html: 4 GPUs on 2 hosts",)),
    Printed(
        "howto/flavors.md",
        "Create flavors by hand",
        only=("gpustack flavor create g1.k4200.2", "gpustack flavor show"),
        put=(("flavor create", "flavor create --yes"),),
        shows=(r"K4200:2|k4200:2",),
    ),
    ByHand("step 1 of the uninstallation", "openstack server delete --wait vm1 vm2"),
    Printed(
        "howto/undo-changes.md",
        "See what was changed",
        only=("gpustack history$",),
        shows=(r"\| flavor apply .*\| done",),
    ),
    Printed(
        "howto/undo-changes.md",
        "Undo a run",
        put=(
            ("gpustack undo", "gpustack undo --yes"),
            (
                "20261124T061500123456Z",
                "$(gpustack history -f value -c id -c command | awk '/flavor apply/ {print $1}')",
            ),
        ),
        shows=(r"(?m)^2 done$",),
    ),
    *uninstall("g1.k4200.2"),
    Printed(TUTORIAL, "Clean up", shows=(r"cloud: stopped and removed",)),
    *REMOVE,
)


def before_upgrade(released: Path) -> tuple[Step, ...]:
    """A host that a release prepared, as its own documentation describes; ``released`` is the source of the release."""
    docs = released / "docs"
    return (
        ByHand(
            "the release from its wheels, in place of an index",
            "tar -xf nova-gpustack-*-offline.tar && python3 -m venv ~/gpustack && ~/gpustack/bin/pip install --quiet"
            " --no-index --find-links nova-gpustack-*-offline/wheels released/*.whl",
        ),
        ByHand(
            "its commands", "export PATH=~/gpustack/bin:$PATH; gpustack --version", (rf"gpustack {released.name}\n",)
        ),
        Printed(TUTORIAL, "Your first host", only=("gpustack example create", "cd"), docs=docs),
        Printed(TUTORIAL, "Scan the host", docs=docs),
        Printed(TUTORIAL, "Write a first spec", docs=docs),
        Printed(TUTORIAL, "Apply and verify", put=(YES,), shows=(r"gpu01: ready, 2 GPUs",), docs=docs),
    )


AFTER_UPGRADE: tuple[Step, ...] = (
    ByHand("the directory of the archive", "cd"),
    Printed(UPGRADE, "Upgrade gpustack", only=("sh nova-gpustack",)),
    Printed(INSTALL, "Try it without network", only=("pip install",)),
    ByHand("the directory of the hosts", "cd try"),
    Printed(
        UPGRADE,
        "Upgrade gpustack",
        only=("gpustack spec", "gpustack host"),
        put=(
            ("plan gpustack.yaml gpu01 --sudo", "plan gpustack.yaml gpu01 -i inventory.yaml"),
            (" --check", " -i inventory.yaml --check"),
        ),
    ),
    Printed("howto/prepare-a-host.md", "Verify", put=(HOSTS,), shows=(r"gpu01: ready, 2 GPUs",)),
    ByHand(
        "GPU235: update-grub of 0.1.0's stand-in, unlike that of a distribution, writes no marks of scripts",
        "python -m gpustack_demo.examples.standin --root $PWD/gpu01 update-grub",
    ),
    *uninstall(""),
    ByHand("the directory of the example hosts", "cd; rm -r try"),
    *REMOVE,
)
