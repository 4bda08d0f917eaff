"""vGPUs by name: the script of the unit on stand-ins for NVIDIA's driver and programs, and what a plan decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.findings import Code, Finding, Severity, errors
from gpustack.prepare.host.decide.virtual_functions import explained
from gpustack.prepare.host.plan import plan_host
from gpustack.prepare.host.prove.undone import verify_undone
from gpustack.prepare.host.prove.verify import verify_host
from gpustack.prepare.host.show import show_plan
from gpustack.prepare.host.undo import plan_undo
from gpustack.spec.assignment import assigned_gpus, kept_cards, mediated_cards
from gpustack.spec.model import Spec
from support.vgpu_hosts import CARDS, INSTANCE, MIG_TYPES, TYPES, UUIDS, Programs, VgpuHost, define, used_by_instance
from support.vgpu_machine import VgpuMachine

IDS = ("10de", "25b6")
HAS = f"{CARDS[0]} has the vGPU type A16-8Q as number"


def card(count: str = "2", kind: str = "A16-8Q", mig: str = "-", address: str = CARDS[0]) -> tuple[str, ...]:
    return (address, *IDS, count, kind, mig)


def programs(path: Path, *, room: int | None = None, given: VgpuHost | None = None, **options: object) -> Programs:
    """The host, whose driver refuses a type on further virtual functions than there is room for."""
    root = (given or VgpuHost()).make(path)
    for number in range(room, 4) if room is not None else ():
        file = root.at(f"/sys/bus/pci/devices/{CARDS[0]}/virtfn{number}/nvidia/current_vgpu_type")
        file.unlink()
        file.symlink_to("/proc/sys/kernel/cap_last_cap")
    return Programs(root, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "room", "types"),
    [("2", None, ["711", "711", "0", "0"]), ("-", None, ["711"] * 4), ("-", 2, ["711", "711"])],
)
def test_types_are_found_by_their_names(tmp_path: Path, count: str, room: int | None, types: list[str]) -> None:
    made = programs(tmp_path, room=room)
    code, record = made.start([card(count)])
    assert (code, record) == (
        0,
        [f"{CARDS[0]} wants 10de 25b6 {count} A16-8Q -", f"{CARDS[0]} has 4 virtual functions", f"{HAS} 711"],
    )
    assert made.types(CARDS[0])[: len(types)] == types


def test_renumbered_type_has_its_new_number(tmp_path: Path) -> None:
    made = programs(tmp_path, given=VgpuHost(types={number + 100: name for number, name in TYPES.items()}))
    assert made.start([card()])[0] == 0
    assert made.types(CARDS[0])[:2] == ["811", "811"]


def test_full_card_has_the_number_of_an_earlier_start(tmp_path: Path) -> None:
    made = programs(tmp_path)
    made.start([card("-")])
    for number in range(4):
        made.root.write(
            f"/sys/bus/pci/devices/{CARDS[0]}/virtfn{number}/nvidia/creatable_vgpu_types", "ID : vGPU Name\n"
        )
    code, record = made.start([card("-")])
    assert (code, record[-2:]) == (0, [f"{CARDS[0]} has 4 virtual functions", f"{HAS} 711"])


@pytest.mark.parametrize(
    ("given", "arguments", "reason"),
    [
        (VgpuHost(), card(kind="A16-1Q"), "the driver lists no vGPU type A16-1Q"),
        (VgpuHost(types=TYPES | {900: "GRID A16-8Q"}), card(), "several numbers: 711, 900"),
        (VgpuHost(absent=("creatable_vgpu_types",)), card(), "the driver lists no vGPU type"),
        (VgpuHost(absent=("/nvidia/current_vgpu_type",)), card(), "only 0 virtual functions can have"),
        (VgpuHost(framework="none"), card(), "its driver is no vGPU driver"),
        (VgpuHost(driver="nouveau"), card(), "its driver nouveau is no vGPU driver"),
        (VgpuHost(framework="sriov-mdev"), card(kind="A16-1Q"), "the driver has no vGPU type A16-1Q"),
        (VgpuHost(texts={"creatable_vgpu_types": "711; reboot : NVIDIA A16-8Q\n"}), card(), "lists no vGPU type"),
    ],
)
def test_card_is_skipped_and_the_others_go_on(
    tmp_path: Path, given: VgpuHost, arguments: Sequence[str], reason: str
) -> None:
    other = (CARDS[1], *IDS, "1", "A16-4Q", "-")
    code, record = programs(tmp_path, given=given).start([arguments, other])
    assert code == 1
    assert reason in next(line for line in record if line.startswith(f"{CARDS[0]} is skipped"))
    assert f"{CARDS[1]} wants 10de 25b6 1 A16-4Q -" in record
    if given == VgpuHost():
        assert record[-1] == f"{CARDS[1]} has the vGPU type A16-4Q as number 710"


def test_card_with_less_room_is_skipped(tmp_path: Path) -> None:
    code, record = programs(tmp_path, room=1).start([card()])
    assert (code, record[-1]) == (1, f"{CARDS[0]} is skipped: only 1 virtual functions can have the vGPU type A16-8Q")


@pytest.mark.parametrize("kind", ["A16-8Q", "nvidia-711"])
def test_mediated_devices_are_never_created(tmp_path: Path, kind: str) -> None:
    made = programs(tmp_path, given=VgpuHost(framework="sriov-mdev"))
    code, record = made.start([card(kind=kind)])
    assert (code, record[-1]) == (0, f"{CARDS[0]} has 4 virtual functions")
    creates = list(made.root.at("/sys/bus/pci/devices").glob("*/mdev_supported_types/*/create"))
    assert len(creates) == 4 * len(TYPES), "of the card that the script prepares"
    assert {file.read_text() for file in creates} == {""}


def test_gpu_instances_come_after_virtual_functions(tmp_path: Path) -> None:
    made = programs(tmp_path, given=VgpuHost(types=MIG_TYPES))
    code, record = made.start([card("-", "A100-1-5C", "1g.5gb")])
    assert code == 0
    assert record[1:-1] == [
        f"{CARDS[0]} MIG mode Disabled, pending Disabled",
        f"{CARDS[0]} MIG mode Enabled, pending Enabled",
        f"{CARDS[0]} has 4 virtual functions",
        f"{CARDS[0]} GPU instance 0 of 1g.5gb at 0:1",
        f"{CARDS[0]} GPU instance 1 of 1g.5gb at 1:1",
    ]
    calls = (tmp_path / "calls").read_text().splitlines()
    assert f"-i {CARDS[0]} -mig 1" in calls
    made.start([card("-", "A100-1-5C", "1g.5gb")])
    assert (tmp_path / "instances").read_text().count("1g.5gb") == 2, "a second start creates none"


@pytest.mark.parametrize(
    ("cards", "created"),
    [
        ([card("3", "DC-1-8Q", "1g.24gb+gfx")], ["1g.24gb+gfx"]),
        ([card("1", "DC-1-24C", "1g.24gb-me")], ["1g.24gb-me"]),
        (
            [card("1", "DC-1-24Q", "1g.24gb+gfx"), (*card("3", "DC-1-8Q", "1g.24gb+gfx"), "1")],
            ["1g.24gb+gfx", "1g.24gb+gfx"],
        ),
    ],
)
def test_vgpus_of_one_type_share_gpu_instances(
    tmp_path: Path, cards: list[tuple[str, ...]], created: list[str]
) -> None:
    types = {
        number: f"NVIDIA RTX Pro 6000 Blackwell DC-1-{size}" for number, size in enumerate(("8Q", "24Q", "24C"), 1)
    }
    made = programs(tmp_path, given=VgpuHost(types=types))
    for _ in range(2):
        code, record = made.start(cards)
        assert (code, (tmp_path / "instances").read_text().count("MIG ")) == (0, len(created))
    assert [line.split()[5] for line in record if " GPU instance " in line][-len(created) :] == created


@pytest.mark.parametrize(
    ("environment", "resets", "reason"),
    [
        ({}, False, "its MIG mode is Disabled, and waits for a reset"),
        ({"NVIDIA_SMI": "/nonexistent"}, True, "MIG mode can't be enabled"),
    ],
)
def test_card_without_its_mig_mode_is_skipped(
    tmp_path: Path, environment: dict[str, str], resets: bool, reason: str
) -> None:
    made = programs(tmp_path, given=VgpuHost(types=MIG_TYPES), resets=resets)
    code, record = made.start([card("1", "A100-1-5C", "1g.5gb")], **environment)
    assert code == 1
    assert reason in record[-1]
    assert made.types(CARDS[0]) == [], "no virtual functions"


def test_card_has_several_types(tmp_path: Path) -> None:
    made = programs(tmp_path)
    several = [(*card("1"), "0", "mixed"), (*card("2", "A16-4Q"), "1", "mixed")]
    for _ in range(2):
        assert made.start(several)[0] == 0
        assert made.types(CARDS[0]) == ["711", "710", "710", "0"]
    assert (tmp_path / "calls").read_text().splitlines() == [
        *(f"-q -i {CARDS[0]}", f"vgpu -i {CARDS[0]} -shm 1"),
        *[f"-q -i {CARDS[0]}"] * 3,
    ]


def test_driver_without_mixed_sizes_is_reported(tmp_path: Path) -> None:
    code, record = programs(tmp_path, mixes=False).start([(*card("1"), "0", "mixed"), (*card("1", "A16-8A"), "1")])
    assert (code, record[2]) == (1, f"{CARDS[0]} is skipped: vGPUs of several sizes can't be mixed: Not Supported")


def spec_of(host: str = "gpu01", **vgpus: dict[str, Any] | None) -> Spec:
    """Models ``first`` and ``second``, which match one card each."""
    addresses = dict(zip(("first", "second"), CARDS, strict=True))
    models = {
        name: {"match": {"vendor": IDS[0], "product": IDS[1], "addresses": [addresses[name]]}, "vgpu": vgpu}
        for name, vgpu in vgpus.items()
    }
    return Spec.model_validate({"version": 1, "models": models, "hosts": {host: list(models)}})


EIGHT, FOUR = {"type": "A16-8Q", "count": 2}, {"type": "A16-4Q"}


def grave(findings: Iterable[Finding]) -> list[str]:
    return [f"{f.code} {f.severity} {f.place}" for f in findings if f.severity is not Severity.INFO]


def test_host_of_two_types_is_prepared_and_undone(tmp_path: Path) -> None:
    machine, spec = VgpuMachine(tmp_path, VgpuHost()), spec_of(first=EIGHT, second=FOUR)
    plan = plan_host(spec, machine.host)
    assert grave(plan.findings) == []
    assert plan.reboot[-2:] == (
        f"{CARDS[0]}: the virtual functions of the card do not exist yet",
        f"{CARDS[1]}: the virtual functions of the card do not exist yet",
    )
    text = show_plan(plan)
    assert "2 vGPUs A16-8Q of model first" in text
    assert "  vGPUs A16-4Q of model second" in text
    assert "vfio" not in text
    machine.carry_out(plan)
    again = plan_host(spec, machine.host)
    assert (again.operations, grave(again.findings)) == ((), [])
    assert "2 vGPUs A16-8Q (number 711) of model first" in show_plan(again)
    verification = verify_host(spec, machine.host, machine.images)
    assert verification.passed, [f.message for f in verification.findings]
    assert [target.address for target in assigned_gpus(spec, machine.host)] == [
        *("0000:41:00.4", "0000:41:00.5"),
        *(f"0000:81:00.{number}" for number in range(4, 8)),
    ]
    undo = plan_undo(machine.host)
    assert f"{CARDS[0]} has 4 virtual functions, no longer wanted" in undo.reboot
    machine.carry_out(undo)
    assert verify_undone(machine.host, machine.images).passed


def test_driver_that_renumbers_types_keeps_their_names(tmp_path: Path) -> None:
    machine, spec = VgpuMachine(tmp_path, VgpuHost()), spec_of(first=EIGHT)
    machine.carry_out(plan_host(spec, machine.host))
    renumbered = {number + 100: name for number, name in TYPES.items()}
    machine.given = VgpuHost(types=renumbered)
    machine.boot()
    assert verify_host(spec, machine.host, machine.images).passed
    assert {target.gpu.main.vgpu_type for target in assigned_gpus(spec, machine.host)} == {"811"}
    machine.given = VgpuHost()
    machine.changed(
        lambda root: [root.write(f"{part}/nvidia/creatable_vgpu_types", "711 : NVIDIA A16-8Q\n") for part in parts(0)]
    )
    verification = verify_host(spec, machine.host, machine.images)
    (error,) = [f for f in verification.findings if f.severity is Severity.ERROR]
    assert "the vGPU type A16-8Q: its number is 711, and was 811" in error.message
    plan = plan_host(spec, machine.host)
    assert (plan.operations, "its number is 711, and was 811" in plan.findings[0].message) == ((), True)


def test_card_of_several_types_is_prepared_and_undone(tmp_path: Path) -> None:
    match = {"match": {"vendor": IDS[0], "product": IDS[1], "addresses": [CARDS[0]]}}
    models = {
        "first": match | {"vgpu": {"type": "A16-8Q", "count": 1}, "alias": "a16"},
        "second": match | {"vgpu": {"type": "A16-4Q", "count": 3}, "alias": "a16"},
    }
    spec = Spec.model_validate({"version": 1, "models": models, "hosts": {"gpu01": [*models]}})
    machine = VgpuMachine(tmp_path, VgpuHost())
    machine.carry_out(plan_host(spec, machine.host))
    verification = verify_host(spec, machine.host, machine.images)
    assert verification.passed, [f.message for f in verification.findings]
    assert plan_host(spec, machine.host).operations == ()
    types = [(target.address, target.model, target.gpu.main.vgpu_type) for target in assigned_gpus(spec, machine.host)]
    assert types == [
        ("0000:41:00.4", "first", "711"),
        *((f"0000:41:00.{number}", "second", "710") for number in (5, 6, 7)),
    ]
    swapped = spec.model_copy(update={"models": dict(reversed(spec.models.items()))})
    machine.changed(lambda root: used_by_instance(root, "/dev/vfio/221"))
    (error,) = [f for f in plan_host(swapped, machine.host).findings if f.severity is Severity.ERROR]
    assert (error.code, INSTANCE in error.message) == (Code.VIRTUAL_FUNCTIONS_LOST, True)
    models["first"]["alias"] = "a16-8q"
    apart = Spec.model_validate({"version": 1, "models": models, "hosts": {"gpu01": [*models]}})
    (error,) = errors(plan_host(apart, machine.host).findings)
    assert (error.code, error.place) == (Code.VGPUS_OF_SEVERAL_ALIASES, f"gpu01 {CARDS[0]}")
    more = spec_of(first={"type": "A16-8Q", "count": 17})
    assert Code.TOO_FEW_VIRTUAL_FUNCTIONS in {f.code for f in plan_host(more, machine.host).findings}


def test_card_of_several_aliases_is_refused_before_its_functions_have_types(tmp_path: Path) -> None:
    machine = VgpuMachine(tmp_path, VgpuHost())
    machine.carry_out(plan_host(spec_of(first={"type": "A16-2Q", "count": 1}), machine.host))
    match = {"match": {"vendor": IDS[0], "product": IDS[1], "addresses": [CARDS[0]]}}
    models = {name: match | {"vgpu": vgpu | {"count": 1}} for name, vgpu in (("first", EIGHT), ("second", FOUR))}
    spec = Spec.model_validate({"version": 1, "models": models, "hosts": {"gpu01": [*models]}})
    assert assigned_gpus(spec, machine.host) == ()
    plan = plan_host(spec, machine.host)
    (error,) = errors(plan.findings)
    assert (error.code, plan.operations) == (Code.VGPUS_OF_SEVERAL_ALIASES, ())


def test_count_above_the_room_of_the_card_is_reported(tmp_path: Path) -> None:
    """Each virtual function offers a device, and the driver creates two on a card (max_instance)."""
    facts = VgpuHost(framework="sriov-mdev", texts={"/available_instances": "1\n"}).read(tmp_path)
    given = {count: spec_of(first={"type": "A16-8Q", "count": count}) for count in (2, 3)}
    faults = {count: explained(facts, kept_cards(spec, facts)[0]) for count, spec in given.items()}
    assert faults == {2: None, 3: "vGPUs of the type A16-8Q that it can create: 2 of 3"}


def parts(number: int) -> list[str]:
    return [f"/sys/bus/pci/devices/{CARDS[number]}/virtfn{index}" for index in range(4)]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (VgpuHost(types={709: "NVIDIA A16-2Q", 710: "NVIDIA A16-4Q"}), "the driver lists no vGPU type A16-8Q"),
        (VgpuHost(types=TYPES | {900: "GRID A16-8Q"}), "several numbers"),
        (VgpuHost(absent=("0000:41:00.4/nvidia/creatable_vgpu_types",), virtual=1), "no vGPU type"),
        (VgpuHost(absent=("0000:41:00.4/nvidia/current_vgpu_type",)), "only 0 virtual functions"),
    ],
)
def test_card_is_left_out_and_named(tmp_path: Path, given: VgpuHost, reason: str) -> None:
    """The other card is offered; the fault requests no further boot."""
    machine, spec = VgpuMachine(tmp_path, given), spec_of(first=EIGHT, second={"type": "A16-4Q", "count": 1})
    machine.carry_out(plan_host(spec, machine.host))
    plan = plan_host(spec, machine.host)
    assert (plan.operations, plan.refused, grave(plan.findings)) == ((), False, [f"GPU902 warning gpu01 {CARDS[0]}"])
    verification = verify_host(spec, machine.host, machine.images)
    assert grave(verification.findings) == [f"GPU902 error gpu01 {CARDS[0]}"]
    assert reason in verification.findings[0].message
    assert {target.model for target in assigned_gpus(spec, machine.host)} == {"second"}
    assert any(CARDS[0] in reason for reason in plan_undo(machine.host).reboot), "its virtual functions are gpustack's"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            VgpuHost(
                modules=("nvidia",), framework="mdev", absent=("name", "instances", "api", "create", "description")
            ),
            "",
        ),
        (VgpuHost(framework="mdev", driver=None, types={}), "the card has no driver"),
        (VgpuHost(framework="mdev", driver="nvidia", modules=("nvidia",), types={}), "is not the vGPU driver"),
        (VgpuHost(framework="mdev", driver="nouveau", types={}), "the driver nouveau creates no vGPUs"),
    ],
)
def test_card_without_vgpu_driver_is_never_bound(tmp_path: Path, given: VgpuHost, reason: str) -> None:
    machine, spec = VgpuMachine(tmp_path, given), spec_of(first=EIGHT)
    plan = plan_host(spec, machine.host)
    assert (plan.operations, plan.gpus) == ((), ())
    (left,) = [f for f in plan.findings if f.code == Code.VGPU_CARD_LEFT_OUT]
    assert reason in left.message
    assert not verify_host(spec, machine.host, machine.images).passed


@pytest.mark.parametrize(("driver", "modules"), [("nvidia", ("nvidia",)), (None, ()), ("nouveau", ("nouveau",))])
def test_boot_is_not_requested_for_a_missing_vgpu_driver(
    tmp_path: Path, driver: str | None, modules: Sequence[str]
) -> None:
    machine = VgpuMachine(tmp_path, VgpuHost(framework="none", virtual=0, driver=driver, modules=modules))
    plan = plan_host(spec_of(first=EIGHT), machine.host)
    assert f"GPU902 warning gpu01 {CARDS[0]}" in grave(plan.findings)
    assert not any(CARDS[0] in reason for reason in plan.reboot)


def test_vgpu_type_of_an_instance_is_never_changed(tmp_path: Path) -> None:
    machine = VgpuMachine(tmp_path, VgpuHost())
    machine.carry_out(plan_host(spec_of(first=EIGHT), machine.host))
    plan = plan_host(spec_of(first=FOUR), machine.host)
    assert not plan.refused, "nothing uses them"
    reason = f"{CARDS[0]}: 0 of 1 virtual function with the vGPU type A16-4Q; others have the number 711"
    assert plan.reboot == (reason,)
    machine.changed(lambda root: used_by_instance(root, "/dev/vfio/222"))
    for spec in (spec_of(first=FOUR), spec_of(second=FOUR), spec_of(first={"type": "A16-8Q", "count": 1})):
        plan = plan_host(spec, machine.host)
        (error,) = [f for f in plan.findings if f.severity is Severity.ERROR]
        assert (plan.refused, error.code, INSTANCE in error.message) == (True, Code.VIRTUAL_FUNCTIONS_LOST, True)
    assert plan_undo(machine.host).refused


@pytest.mark.parametrize("framework", ["mdev", "sriov-mdev"])
def test_mediated_devices_are_left_to_nova(tmp_path: Path, framework: str) -> None:
    given = VgpuHost(framework=framework, devices=dict.fromkeys(UUIDS, 711))
    machine, spec = VgpuMachine(tmp_path, given), spec_of(first=EIGHT)
    plan = plan_host(spec, machine.host)
    assert bool(plan.operations) == (framework == "sriov-mdev"), "a card without virtual functions needs no unit"
    machine.carry_out(plan)
    machine.changed(lambda root: used_by_instance(root, "/dev/vfio/91"))
    verification = verify_host(spec, machine.host, machine.images)
    assert verification.passed, [f.message for f in verification.findings]
    plan = plan_host(spec_of(first=FOUR), machine.host)
    (error,) = [f for f in plan.findings if f.severity is Severity.ERROR]
    assert error.code == Code.MEDIATED_TYPE_IN_USE
    assert f"{UUIDS[1]}: instance {INSTANCE}" in error.message


@pytest.mark.parametrize("framework", ["vfio", "mdev", "sriov-mdev"])
def test_model_is_never_removed_under_an_instance(tmp_path: Path, framework: str) -> None:
    """Neither from the spec, nor from the host, nor with the host; and the card is not passed through."""
    given = VgpuHost(framework=framework, devices=dict.fromkeys(UUIDS, 711) if "mdev" in framework else {})
    machine, spec = VgpuMachine(tmp_path, given), spec_of(first=EIGHT)
    machine.carry_out(plan_host(spec, machine.host))
    changed = {
        "removed": spec_of(second=FOUR),
        "host removed": spec_of("gpu02", first=EIGHT),
        "passed through": spec_of(first=None, second=FOUR),
    }
    machine.changed(lambda root: used_by_instance(root, "/dev/vfio/222" if framework == "vfio" else "/dev/vfio/91"))
    for name, other in changed.items():
        plan = plan_host(other, machine.host)
        named = [f.code for f in plan.findings if f.severity is Severity.ERROR and INSTANCE in f.message]
        assert (plan.refused, bool(named)) == (True, True), name
        assert (Code.MEDIATED_TYPE_IN_USE in named) == (framework != "vfio"), name
    undo = plan_undo(machine.host)
    assert undo.refused == (framework != "mdev"), "a card without virtual functions has no file of gpustack"
    assert plan_host(spec, machine.host).operations == ()


@pytest.mark.parametrize("framework", ["vfio", "mdev"])
def test_device_of_a_stopped_instance_is_verified(tmp_path: Path, framework: str) -> None:
    given = VgpuHost(framework=framework, devices=dict.fromkeys(UUIDS, 711) if framework == "mdev" else {})
    machine, spec = VgpuMachine(tmp_path, given), spec_of(first=EIGHT)
    machine.carry_out(plan_host(spec, machine.host))
    device = UUIDS[0] if framework == "mdev" else "0000:41:00.4"
    machine.changed(lambda root: define(root, device))
    verification = verify_host(spec, machine.host, machine.images)
    assert verification.passed, [f.message for f in verification.findings]
    assert device in [check.seen for check in verification.checks if check.place == f"gpu01 {INSTANCE}"]
    messages = [
        f.message for f in plan_host(spec_of(first=FOUR), machine.host).findings if f.severity is Severity.ERROR
    ]
    text = {
        "mdev": f"{device}: instance {INSTANCE}, not running",
        "vfio": f"{device} (instance {INSTANCE}, not running)",
    }
    assert [text[framework] in message for message in messages] == [True], "it keeps its type"
    for name, severity in ((UUIDS[0][:-1] + "9", Severity.WARNING), ("0000:99:00.4", Severity.ERROR)):
        define(machine.root, device, name)
        machine.read()
        (lost,) = verify_host(spec, machine.host, machine.images).findings
        assert (lost.code, lost.severity) == (Code.VGPU_OF_INSTANCE_MISSING, severity)
        assert f"{name} does not exist" in lost.message


def test_type_of_a_stopped_instances_function_is_verified(tmp_path: Path) -> None:
    """Also on a card with several types."""
    spec = spec_of(first={"type": "A16-8Q", "count": 1}, second={"type": "A16-4Q", "count": 2})
    match = spec.models["first"].match
    update = {"match": match, "alias": "a16"}
    spec = spec.model_copy(update={"models": {n: m.model_copy(update=update) for n, m in spec.models.items()}})
    machine = VgpuMachine(tmp_path, VgpuHost())
    machine.carry_out(plan_host(spec, machine.host))
    machine.changed(lambda root: define(root, "0000:41:00.4", "0000:41:00.5", "0000:41:00.7"))
    found = verify_host(spec, machine.host, machine.images).findings
    assert [f.message for f in found if f.code == Code.VGPU_OF_INSTANCE_MISSING] == [
        "the host has the devices of the instance: failed, 0000:41:00.7 has another vGPU type"
    ]


@pytest.mark.parametrize(
    ("tools", "reported"),
    [((), False), (("libvirtd",), True), (("libvirtd", "mdevctl"), False), (("virtqemud",), True)],
)
def test_libvirt_without_mdevctl_is_reported(tmp_path: Path, tools: Sequence[str], reported: bool) -> None:
    host = VgpuHost(framework="mdev").read(tmp_path, {f"/usr/sbin/{name}": "" for name in tools})
    plan = plan_host(spec_of(first=EIGHT, second=FOUR), host)
    found = [f.place for f in plan.findings if f.code == Code.MDEVCTL_MISSING]
    assert found == ["gpu01"] * reported


def test_types_of_the_operators_own_configuration_are_a_warning(tmp_path: Path) -> None:
    machine = VgpuMachine(tmp_path, VgpuHost(framework="mdev", devices=dict.fromkeys(UUIDS, 711)))
    machine.changed(lambda root: used_by_instance(root, "/dev/vfio/91"))
    plan = plan_host(spec_of(second=None), machine.host)
    (note,) = [f for f in plan.findings if f.code == Code.MEDIATED_TYPE_IN_USE]
    assert (note.severity, INSTANCE in note.message) == (Severity.WARNING, True)


def test_thousand_types_have_one_of_each_name(tmp_path: Path) -> None:
    types = {number: f"NVIDIA A16-{number}Q" for number in range(1, 1001)}
    machine = VgpuMachine(tmp_path, VgpuHost(framework="mdev", types=types))
    spec = spec_of(first={"type": "A16-1000Q", "count": 2}, second={"type": "A16-1Q", "count": 3})
    verification = verify_host(spec, machine.host, machine.images)
    assert grave(verification.findings) == [f"GPU902 error gpu01 {CARDS[1]}"]
    assert "vGPUs of the type A16-1Q that it can create: 2 of 3" in verification.findings[0].message
    assert {card.type.number for card in mediated_cards(spec, machine.host)} == {"nvidia-1000", "nvidia-1"}


def test_mediated_devices_of_others_are_reported(tmp_path: Path) -> None:
    machine = VgpuMachine(tmp_path, VgpuHost(framework="mdev", devices=dict.fromkeys(UUIDS, 711)))
    machine.changed(lambda root: used_by_instance(root, "/dev/vfio/91").write("/proc/4711/cmdline", "qemu-kvm\0"))
    definition = f"/etc/mdevctl.d/{CARDS[0]}/{UUIDS[0]}"
    machine.raw["files"][definition] = {"text": '{"mdev_type": "nvidia-711", "start": "auto"}', "mode": "0644"}
    plan = plan_host(spec_of(first={"type": "A16-8Q"}), machine.host)
    (note,) = [f for f in plan.findings if f.code == Code.MEDIATED_DEVICES_OF_OTHERS]
    assert f"{UUIDS[1]} (process qemu-kvm (4711)" in note.message
    assert definition in note.message
    assert not plan.refused


@pytest.mark.parametrize("resets", [True, False])
def test_mig_mode_that_waits_for_a_reset_is_a_step(tmp_path: Path, resets: bool) -> None:
    machine = VgpuMachine(tmp_path, VgpuHost(types=MIG_TYPES, instances=()), resets=resets)
    spec = spec_of(first={"type": "A100-1-5C", "mig": "1g.5gb", "count": 2})
    machine.carry_out(plan_host(spec, machine.host))
    if not resets:
        plan = plan_host(spec, machine.host)
        (reason,) = plan.reboot
        assert reason.startswith(f"{CARDS[0]}: its MIG mode waits for a reset (skipped at boot:")
        assert assigned_gpus(spec, machine.host) == ()
        machine.carry_out(plan)
    assert plan_host(spec, machine.host).operations == ()
    verification = verify_host(spec, machine.host, machine.images)
    assert verification.passed, [f.message for f in verification.findings]
    card = machine.host.functions[CARDS[0]]
    assert card.mig is not None
    assert [instance.profile for instance in card.mig.instances or ()] == ["1g.5gb", "1g.5gb"]
    assert len(assigned_gpus(spec, machine.host)) == 2
    undo = plan_undo(machine.host)
    assert f"GPU909 warning gpu01 {CARDS[0]}" in grave(undo.findings)


@pytest.mark.parametrize("framework", ["vfio", "mdev", "sriov-mdev"])
def test_every_attribute_can_be_missing_or_wrong(tmp_path: Path, framework: str) -> None:
    """No fault of one attribute breaks a plan or a verification, or offers a card that lacks its type."""
    spec = spec_of(first=EIGHT, second={"type": "A16-4Q", "count": 1})
    names = {path.rpartition("/")[2] for path in VgpuHost(framework=framework).attributes()}
    for number, name in enumerate(sorted(names)):
        wrong = {f"/{name}": "\x1b[2J 99999999999999 :\n"}
        faults = VgpuHost(framework=framework, absent=(f"/{name}",)), VgpuHost(framework=framework, texts=wrong)
        for kind, given in enumerate(faults):
            machine = VgpuMachine(tmp_path / f"{number}-{kind}", given)
            machine.carry_out(plan_host(spec, machine.host))
            plan = plan_host(spec, machine.host)
            assert (plan.operations, plan.refused) == ((), False), (name, given)
            offered = [*assigned_gpus(spec, machine.host), *mediated_cards(spec, machine.host)]
            passed = verify_host(spec, machine.host, machine.images).passed
            assert passed or any(f.code == Code.VGPU_CARD_LEFT_OUT for f in plan.findings), (name, given)
            assert not (passed and not offered), (name, given)
