"""prepare.yml and undo.yml with gpustack_cloud: a real Nova, the real ansible-playbook, a host that is a directory."""

from __future__ import annotations

import pytest
from serviceworld import HOST, World, prepared

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # openstacksdk warns of its own code


def test_guests_stand_against_a_reboot_until_a_policy_is_chosen(world: World) -> None:
    root = world.new_host()
    guest, gpu = world.guest("plain-guest"), world.guest("gpu-guest", "gpu")
    code, said = world.play("prepare", root)
    assert code == 2, said
    assert f"GPU605 talk plain-guest ({guest.id})" in said, said
    assert f"GPU606 talk gpu-guest ({gpu.id})" in said
    assert not prepared(root)
    assert world.service() == ("enabled", None)
    assert world.marks(guest) == {}

    code, said = world.play("prepare", root, "--check", gpustack_guests="stop", gpustack_device_guests="stop")
    assert code == 0, said
    assert f"stop plain-guest ({guest.id})" in said
    assert world.state(guest) == ("ACTIVE", HOST)
    assert world.service() == ("enabled", None)

    code, said = world.play("prepare", root, gpustack_guests="stop", gpustack_device_guests="stop")
    assert code == 0, said
    assert prepared(root)
    for one in (guest, gpu):
        assert world.state(one) == ("ACTIVE", HOST)
        assert world.marks(one) == {}
        actions = [action.action for action in world.cloud.compute.server_actions(one)]
        assert actions[:2] == ["start", "stop"]
    assert world.service() == ("enabled", None)

    code, said = world.play("prepare", root, gpustack_guests="stop", gpustack_device_guests="stop")
    assert code == 0, said
    assert "changed=0" in said
    assert len(list(world.cloud.compute.server_actions(guest))) == 3
