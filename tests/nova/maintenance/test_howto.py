"""The commands of docs/howto/hosts-in-service.md, exactly as on the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.maintenance_world import HOST, RELEASES, World, prepared

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # openstacksdk warns of its own code

PAGE = Path(__file__).parents[3] / "docs/howto/hosts-in-service.md"


def blocks() -> list[list[str]]:
    """The commands of each console block, each on one line."""
    text = re.sub(r" \\\n +", " ", PAGE.read_text(encoding="utf-8"))
    return [
        [line.removeprefix("$ ") for line in block.splitlines()]
        for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    ]


@pytest.mark.skipif(RELEASES[0] == "2026.2", reason="its `openstack server list` wants a Keystone; this Nova has none")
def test_what_the_guide_says_works(world: World) -> None:
    (check, apply), give_up, ansible = blocks()
    check, apply = (line.replace("gpustack.yaml gpu01", "gpustack.yaml -i inventory") for line in (check, apply))
    root = world.new_host()
    plain, gpu = world.guest("plain-guest"), world.guest("gpu-guest", "gpu")
    code, output = world.shell(root, "\n".join(ansible[:2]))
    assert code == 0, output
    assert f"live-migrate plain-guest ({plain.id})" in output
    assert (prepared(root), world.service()) == (False, ("enabled", None))

    code, output = world.shell(root, "\n".join([ansible[0], f"{ansible[2]} -e gpustack_reboot_command=/bin/false"]))
    assert code == 2, output
    assert world.state(gpu) == ("SHUTOFF", HOST)
    assert world.service()[0] == "disabled"
    for line in give_up:
        process = world.nova.openstack(*line.replace("gpu01", HOST).replace("GUEST", gpu.id).split()[1:])
        if " list " in line:
            assert gpu.id in process.stdout
    assert world.state(gpu) == ("ACTIVE", HOST)
    assert world.service() == ("enabled", None)

    code, output = world.shell(root, check)
    assert code == 0, output
    assert "talk: needs a reboot" in output
    code, output = world.shell(root, f"{apply} --yes")
    assert code == 0, output
    assert re.search(r"^talk: done \(.*rebooted, verified\)$", output, re.MULTILINE)
    assert prepared(root)
    assert world.state(gpu) == ("ACTIVE", HOST)
    assert [world.marks(guest) for guest in (plain, gpu)] == [{}, {}]
    assert world.service() == ("enabled", None)
    code, output = world.shell(root, "gpustack history --object gpu-guest -f value -c Command -c State")
    assert (code, set(output.splitlines())) == (0, {"host apply done"}), output
