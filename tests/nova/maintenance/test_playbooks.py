"""prepare.yml and undo.yml with gpustack_cloud: a real Nova, the real ansible-playbook, a host that is a directory."""

from __future__ import annotations

import re

import pytest

from gpustack_demo.examples.boot import boot
from support.maintenance_world import HOST, OTHER, World, panic_with, prepared

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # openstacksdk warns of its own code


def test_guests_stand_against_a_reboot_until_a_policy_is_chosen(world: World) -> None:
    root = world.new_host()
    guest, gpu = world.guest("plain-guest"), world.guest("gpu-guest", "gpu")
    code, output = world.play("prepare", root)
    assert code == 2, output
    assert f"GPU605 talk plain-guest ({guest.id})" in output, output
    assert f"GPU606 talk gpu-guest ({gpu.id})" in output
    assert not prepared(root)
    assert world.service() == ("enabled", None)
    assert world.marks(guest) == {}

    code, output = world.play("prepare", root, "--check", gpustack_guests="stop", gpustack_device_guests="stop")
    assert code == 0, output
    assert f"stop plain-guest ({guest.id})" in output
    assert world.state(guest) == ("ACTIVE", HOST)
    assert world.service() == ("enabled", None)

    stranger = root / "run/libvirt/qemu/stranger.xml"
    stranger.parent.mkdir(parents=True)
    stranger.write_text("<domstatus state='running'/>\n", encoding="utf-8")
    code, output = world.play("prepare", root, gpustack_guests="stop", gpustack_device_guests="stop")
    assert code == 2, output
    assert "instances run there: stranger. Nova does not know them" in output
    assert not prepared(root)
    stranger.unlink()
    code, output = world.play("prepare", root, gpustack_guests="stop", gpustack_device_guests="stop")
    assert code == 0, output
    assert prepared(root)
    for instance in (guest, gpu):
        assert world.state(instance) == ("ACTIVE", HOST)
        assert world.marks(instance) == {}
        actions = [action.action for action in world.cloud.compute.server_actions(instance)]
        assert actions[:2] == ["start", "stop"]
    assert world.service() == ("enabled", None)

    code, output = world.play("prepare", root, gpustack_guests="stop", gpustack_device_guests="stop")
    assert code == 0, output
    assert "changed=0" in output
    assert len(list(world.cloud.compute.server_actions(guest))) == 3


def test_guests_move_and_one_that_finds_no_room_is_kept_until_a_policy_fits(world: World) -> None:
    root = world.new_host()
    plain, first, two = world.guest("plain-guest"), world.guest("one", "gpu"), world.guest("two", "gpu")
    code, output = world.play("prepare", root, gpustack_guests="live-migrate", gpustack_device_guests="cold-migrate")
    assert code == 2, output
    assert len(set(re.findall(r"GPU611 talk (\w+) ", output))) == 1, output
    assert "No valid host" in output
    assert not prepared(root)
    assert world.state(plain) == ("ACTIVE", OTHER)
    assert sorted(world.state(guest) for guest in (first, two)) == [("ACTIVE", OTHER), ("ACTIVE", HOST)]
    moved, stayed = (first, two) if world.state(first)[1] == OTHER else (two, first)
    assert world.nova.control.hostdevs(moved.id) == {OTHER: ["0000:41:00.0"]}, "confirmed: the source keeps nothing"
    status, reason = world.service()
    assert status == "disabled"
    assert ": failed: talk before its reboot: GPU611 talk " in (reason or "")

    code, output = world.play("prepare", root, gpustack_guests="refuse", gpustack_device_guests="stop")
    assert code == 0, output
    assert prepared(root)
    assert world.state(moved) == ("ACTIVE", OTHER)
    assert world.state(stayed) == ("ACTIVE", HOST)
    assert [world.marks(guest) for guest in (plain, first, two)] == [{}, {}, {}]
    assert world.service() == ("enabled", None)


def test_a_run_that_broke_before_the_reboot_is_taken_up_and_what_people_did_meanwhile_holds(world: World) -> None:
    root = world.new_host()
    untouched, operated, off = (world.guest(name) for name in ("mine", "theirs", "off"))
    world.stop(off)
    policy = {"gpustack_guests": "stop", "gpustack_device_guests": "stop"}
    code, output = world.play("prepare", root, **policy, gpustack_reboot_command=["/bin/false"])
    assert code == 2, output
    assert [world.state(guest)[0] for guest in (untouched, operated, off)] == ["SHUTOFF", "SHUTOFF", "SHUTOFF"]
    assert world.service()[0] == "disabled"
    assert f"start mine ({untouched.id})" in output.partition("Record the failure in Nova")[2], "remaining work"

    world.start(operated)
    world.stop(operated)
    boot(root)  # by hand
    code, output = world.play("prepare", root, "--check", **policy)
    assert code == 0, output
    assert f"start mine ({untouched.id})" in output
    assert world.state(untouched)[0] == "SHUTOFF"
    code, output = world.play("prepare", root, **policy)
    assert code == 0, output
    assert output.index("talk: ready,") < output.rindex(f"start mine ({untouched.id})")
    assert f"GPU616 talk theirs ({operated.id})" in output
    assert [world.state(guest)[0] for guest in (untouched, operated, off)] == ["ACTIVE", "SHUTOFF", "SHUTOFF"]
    assert [world.marks(guest) for guest in (untouched, operated, off)] == [{}, {}, {}]
    assert world.service() == ("enabled", None)


def test_a_trial_and_an_undo_leave_a_service_that_a_person_disabled(world: World) -> None:
    root = world.new_host()
    guest = world.guest("gpu-guest", "gpu")
    (service,) = world.cloud.compute.services(host=HOST, binary="nova-compute")
    world.cloud.compute.disable_service(service, disabled_reason="bad memory")
    code, output = world.play("prepare", root, gpustack_trial=True, gpustack_device_guests="stop")
    assert code == 0, output
    assert prepared(root)
    assert world.state(guest) == ("ACTIVE", HOST)
    code, output = world.play("undo", root, gpustack_device_guests="refuse")
    assert code == 2, output
    assert f"GPU606 talk gpu-guest ({guest.id})" in output
    code, output = world.play("undo", root, gpustack_device_guests="stop")
    assert code == 0, output
    assert not prepared(root)
    assert world.state(guest) == ("ACTIVE", HOST)
    assert [action.action for action in world.cloud.compute.server_actions(guest)].count("stop") == 2
    assert world.service() == ("disabled", "bad memory")


def test_a_host_whose_trial_has_failed_stays_out_of_service_until_it_is_undone_or_prepared(world: World) -> None:
    root = world.new_host()
    before = (root / "proc/cmdline").read_text(encoding="utf-8")
    plain, gpu = world.guest("plain-guest"), world.guest("gpu-guest", "gpu")
    policy = {"gpustack_guests": "live-migrate", "gpustack_device_guests": "stop"}
    panic_with(root, "intel_iommu=on")
    code, output = world.play("prepare", root, gpustack_trial=True, **policy)
    assert code == 2, output
    assert (root / "proc/cmdline").read_text(encoding="utf-8") == before
    message = output[output.index("talk did not stay up with the new kernel arguments") :]
    assert f"start gpu-guest ({gpu.id})" in message
    assert "enable nova-compute of talk" in message
    status, reason = world.service()
    assert status == "disabled"
    assert ": failed: talk did not stay up with the new kernel arguments: " in (reason or "")
    assert [world.state(guest) for guest in (plain, gpu)] == [("ACTIVE", OTHER), ("SHUTOFF", HOST)]

    code, output = world.play("undo", root, **policy)
    assert code == 0, output
    assert not prepared(root)
    assert [world.state(guest) for guest in (plain, gpu)] == [("ACTIVE", OTHER), ("ACTIVE", HOST)]
    assert [world.marks(guest) for guest in (plain, gpu)] == [{}, {}]
    assert world.service() == ("enabled", None)

    code, output = world.play("prepare", root, gpustack_trial=True, **policy)
    assert code == 2, output
    assert world.state(gpu) == ("SHUTOFF", HOST)
    panic_with(root)
    code, output = world.play("prepare", root, gpustack_trial=True, **policy)
    assert code == 0, output
    assert prepared(root)
    assert [world.state(guest) for guest in (plain, gpu)] == [("ACTIVE", OTHER), ("ACTIVE", HOST)]
    assert (world.marks(gpu), world.service()) == ({}, ("enabled", None))
