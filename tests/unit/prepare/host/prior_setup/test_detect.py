"""Hand-made configuration is reported with file and line; agreeing lines are no conflict."""

from __future__ import annotations

import pytest

from gpustack.base.operations import WriteFile
from gpustack.prepare.host.plan import plan_host
from support.host_cases import SPEC
from support.prior_setups import FIRST_CARD, codes, hand_made, machine, messages


def test_without_leave_what_disagrees_is_named_with_file_and_line_and_nothing_is_done() -> None:
    plan = plan_host(SPEC, hand_made().host)
    assert plan.refused
    assert plan.operations == ()
    errors = {(f.code, f.place.removeprefix("gpu01 ")) for f in plan.findings if f.severity == "error"}
    assert errors == {
        ("GPU120", "/etc/default/grub:4"),
        ("GPU135", "/etc/default/grub:4"),
        ("GPU135", "/etc/initramfs-tools/modules:2"),
        ("GPU135", "/etc/modprobe.d/vfio.conf:2"),
        ("GPU143", "/etc/rc.local:2"),
        ("GPU143", "/etc/rc.local:3"),
        ("GPU143", "/etc/rc.local:5"),
        ("GPU143", "/etc/rc.local:7"),
        ("GPU143", "/etc/udev/rules.d/99-gpu.rules:3"),
    }


def test_what_agrees_is_no_conflict_and_is_reported() -> None:
    plan = plan_host(SPEC, hand_made().host)
    assert set(messages(plan, "GPU170")) == {
        "/etc/default/grub:4",
        "/etc/driverctl.d/0000:84:00.1",
        "/etc/modprobe.d/blacklist.conf:3",
        "/etc/modprobe.d/blacklist.conf:4",
        "/etc/modprobe.d/blacklist.conf:5",
        "/etc/modprobe.d/vfio.conf:3",
        *(f"/etc/modules:{line}" for line in (2, 3, 4, 5)),
        "/etc/udev/rules.d/99-gpu.rules:2",
    }


@pytest.mark.parametrize(
    ("ids", "agrees"),
    [
        ("10de:11b4:10de:1096,10de:e0a", True),
        ("0x10de:0x11b4,10de:0e0a:ffffffff:ffffffff:040300:ffffff", True),
        ('"10DE:11B4,10de:0e0a"', True),
        ("10de:11b4:103c,10de:0e0a", False),
        ("10de:11b4:10de:1097,10de:0e0a", False),
        ("10de:11b4,10de:0e0a:ffffffff:ffffffff:030000:ff0000", False),
        ("10de:11b4:10de:1097,10de:11b4,10de:0e0a", True),
        ("10de:11b4:zz,10de:0e0a", False),
    ],
)
def test_ids_mean_what_the_driver_reads_in_them(ids: str, agrees: bool) -> None:
    """Of two lists the last counts, so one that takes fewer boards than the plan's would leave GPUs to the host."""
    plan = plan_host(SPEC, machine({"/etc/modprobe.d/zz.conf": f"options vfio-pci ids={ids}\n"}).host)
    assert plan.refused is not agrees
    assert set(messages(plan, "GPU170" if agrees else "GPU135")) == {"/etc/modprobe.d/zz.conf:1"}


def test_a_blacklist_that_the_cards_of_the_host_need_is_reported() -> None:
    host = machine({"/etc/modprobe.d/blacklist.conf": "blacklist nouveau\n"})
    plan = plan_host(FIRST_CARD, host.host)
    assert "0000:88:00.0" in messages(plan, "GPU173")["/etc/modprobe.d/blacklist.conf:1"][0]
    assert not plan.refused
    host_plan = plan_host(FIRST_CARD, host.host, adopt=True)
    assert "GPU173" not in codes(host_plan)


def test_a_blacklist_for_the_driver_of_a_card_of_the_host_stays() -> None:
    """NVIDIA's packages blacklist nouveau, which would bind the card in the initramfs."""
    path = "/etc/modprobe.d/nvidia-blacklists-nouveau.conf"
    host = machine({path: "blacklist nouveau\n"})
    function = next(f for f in host.raw["pci"] if f["address"] == "0000:88:00.0")
    function.update(driver="nvidia", driver_module="nvidia_current")
    assert path not in str(plan_host(FIRST_CARD, host.host).findings)
    plan = plan_host(FIRST_CARD, host.host, adopt=True)
    assert not plan.refused
    assert path not in str(plan.to_dict())


@pytest.mark.parametrize(
    ("line", "is_shown"),
    [
        ("softdep nouveau pre: vfio-pci", True),
        ("softdep nvidia* pre: vfio-pci", True),
        ("softdep snd-hda-intel pre: vfio vfio_pci", True),
        ("softdep nouveau pre: vfio-pci post: drm", False),
        ("softdep xhci_hcd pre: vfio-pci", False),
    ],
)
def test_order_of_modules_by_hand_agrees_as_modprobe_reads_it(line: str, is_shown: bool) -> None:
    host = machine({"/etc/modprobe.d/vfio.conf": f"{line}\n"}).host
    plan = plan_host(SPEC, host)
    assert not plan.refused
    assert list(messages(plan, "GPU170")) == (["/etc/modprobe.d/vfio.conf:1"] if is_shown else [])
    adopted = messages(plan_host(SPEC, host, adopt=True), "GPU171")
    assert list(adopted) == (["/etc/modprobe.d/vfio.conf:1"] if is_shown else [])


@pytest.mark.parametrize(
    "text",
    [
        'omit_drivers+="\n  nouveau\n  vfio-pci-core\n"\n',
        'omit_drivers+=" nouveau \\\n vfio_pci_core "\n',
        "omit_drivers+=vfio_pci_core\n",
        'omit_drivers+=" vfio_pci_core "; compress="zstd"\n',
    ],
)
def test_drivers_that_dracut_omits_are_seen_on_every_line(text: str) -> None:
    path = "/etc/dracut.conf.d/off.conf"
    host = machine({path: f"hostonly=yes\n{text}"})
    host.raw["initramfs_tool"] = "dracut"
    assert list(messages(plan_host(SPEC, host.host), "GPU140")) == [f"{path}:2"]
    plan = plan_host(SPEC, host.host, adopt=True)
    assert list(messages(plan, "GPU172")) == ([] if text.startswith("omit_drivers+=v") else [f"{path}:2"])


def test_drivers_that_dracut_adds_are_seen_on_every_line() -> None:
    path = "/etc/dracut.conf.d/vfio.conf"
    host = machine({path: 'add_drivers+="\n  vfio\n  vfio_pci\n"\n'})
    host.raw["initramfs_tool"] = "dracut"
    assert list(messages(plan_host(SPEC, host.host), "GPU170")) == [f"{path}:1"]
    assert f"{path}:1" not in messages(plan_host(SPEC, host.host, adopt=True), "GPU171")


def test_lines_for_dracut() -> None:
    path = "/etc/dracut.conf.d/vfio.conf"
    text = 'hostonly=yes\nadd_drivers+=" vfio vfio_pci vfio_iommu_type1 "\nforce_drivers+=" vfio-pci igb "\n'
    host = machine({path: text, "/etc/dracut.conf.d/off.conf": "omit_drivers+=' vfio_pci_core ' # why\n"})
    host.raw["initramfs_tool"] = "dracut"
    plan = plan_host(SPEC, host.host)
    assert set(messages(plan, "GPU170")) == {f"{path}:2", f"{path}:3"}
    assert set(messages(plan, "GPU140")) == {"/etc/dracut.conf.d/off.conf:1"}
    plan = plan_host(SPEC, host.host, adopt=True)
    assert not plan.refused
    assert set(messages(plan, "GPU171")) == {f"{path}:2", "/etc/dracut.conf.d/off.conf:1"}
    contents = {o.path: o.content for o in plan.operations if isinstance(o, WriteFile)}
    assert contents[path].splitlines()[::2] == text.splitlines()[::2]
    assert contents["/etc/dracut.conf.d/off.conf"].startswith(": # ")
