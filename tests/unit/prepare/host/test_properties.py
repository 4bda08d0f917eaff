"""What holds of every plan, whatever the host and the spec."""

from __future__ import annotations

import copy
import re
from typing import Any

import jinja2
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gpustack.base.files import share_dir
from gpustack.base.operations import Reboot, RemoveFile, RunCommand, WriteFile
from gpustack.linux.cmdline import canonical
from gpustack.linux.modprobe import parse
from gpustack.prepare.host.own_files import DRACUT, DRACUT_MODULE, DRACUT_SCRIPT, SCRIPT
from gpustack.prepare.host.plan import HostPlan, plan_host
from gpustack.prepare.host.prove.verify import verify_host
from gpustack.prepare.host.show import show_plan
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Spec
from support.boot_simulation import Machine
from support.host_samples import snapshot

BASE = snapshot("k4200")
RELEASES = ("6.1.0-37-amd64", "6.1.0-35-amd64")
IDS = [
    ("10de", "11b4", "030000", ["nouveau"]),
    ("10de", "0e0a", "040300", ["snd_hda_intel"]),
    ("10de", "20b2", "030200", ["nvidiafb", "nouveau", "nvidia"]),
    ("10de", "1af1", "068000", ["nvidia"]),
    ("1002", "744c", "030000", ["amdgpu"]),
    ("1002", "ab30", "040300", ["snd_hda_intel"]),
    ("8086", "3e9b", "030000", ["i915"]),
    ("8086", "1521", "020000", ["igb"]),
    ("10de", "1ad8", "0c0330", ["xhci_pci"]),
    ("abcd", "1234", "030000", ["evil+module.x-1"]),
]

FUNCTIONS = st.builds(
    lambda kind, bus, function, bound, driver, group: {
        "address": f"0000:{bus:02x}:00.{function}",
        "vendor": kind[0],
        "product": kind[1],
        "class": kind[2],
        "modules": kind[3],
        "driver": driver or (kind[3][0] if bound else None),
        "driver_override": driver,  # somebody else's doing
        "iommu_group": group,
        "reset_methods": ["bus"],
    },
    st.sampled_from(IDS),
    st.integers(0x20, 0x26),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from([None, None, None, "vfio-pci", "pci-stub"]),
    st.sampled_from([None, None, 70, 71]),
)
KINDS = st.sampled_from(["module", "module", "module", "builtin", None])
WORDS = st.sampled_from(
    ["quiet", "intel_iommu=on", "iommu=pt", "iommu=nopt", "amd_iommu=on", "ro", "x='y'", "$HOME", "`id`", "a;b", "--"]
)
FILES = st.dictionaries(
    st.sampled_from(
        [
            "/etc/default/grub.d/50-a.cfg",
            "/etc/default/grub.d/99-z.cfg",
            "/etc/modprobe.d/vfio.conf",
            "/etc/modprobe.d/gpustack.conf",
            "/etc/default/grub.d/90-gpustack.cfg",
            "/etc/initramfs-tools/modules",
        ]
    ),
    st.one_of(
        st.lists(WORDS, max_size=3).map(lambda arguments: f'GRUB_CMDLINE_LINUX_DEFAULT="{" ".join(arguments)}"\n'),
        st.lists(WORDS, max_size=3).map(
            lambda arguments: f'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT {" ".join(arguments)}"\n'
        ),
        st.sampled_from(
            [
                "",
                "# Written by gpustack.\n",
                "# Written by gpustack.\noptions vfio-pci ids=10de:11b4\n",
                "options vfio-pci ids=10de:11b4,10de:0e0a\n",
                "options vfio-pci ids=;reboot\n",
                "blacklist vfio_pci\n",
            ]
        ),
    ),
    max_size=2,
)


@st.composite
def hosts(draw: st.DrawFn) -> dict[str, Any]:
    raw = copy.deepcopy(BASE)
    added = {entry["address"]: entry for entry in draw(st.lists(FUNCTIONS, max_size=5))}
    raw["pci"] += list(added.values())
    for path, text in draw(FILES).items():
        raw["files"][path] = {"text": text, "mode": "0644", "mtime_ns": 1_763_600_000_000_000_000}
    for kernel in raw["boot"]["kernels"]:
        for name in ("vfio_pci", "vfio_iommu_type1", "pci_stub"):
            kind = draw(KINDS)
            kernel["modules"].pop(name, None)
            if kind:
                kernel["modules"][name] = kind
    raw["initramfs_tool"] = draw(st.sampled_from(["initramfs-tools", "dracut"]))
    raw["iommu"]["acpi_tables"] = draw(st.sampled_from([["DMAR"], ["DMAR"], ["IVRS"], []]))
    return raw


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    chosen = draw(st.lists(st.sampled_from([kind[:2] for kind in IDS]), min_size=1, max_size=3, unique=True))
    models = {
        f"m{vendor}{product}": {
            "match": {"vendor": vendor, "product": product},
            "driver": draw(st.sampled_from(["vfio-pci", "vfio-pci", "pci-stub"])),
        }
        for vendor, product in [("10de", "11b4"), *chosen]
    }
    options = {
        "iommu_pt": draw(st.booleans()),
        "allow_unsafe_interrupts": draw(st.booleans()),
        "blacklist_host_drivers": draw(st.booleans()),
    }
    nvswitch = draw(st.sampled_from([None, "full", "isolated"]))
    if nvswitch:
        options["nvswitch"] = nvswitch
    document = {"version": 1, "models": models, "hosts": {"gpu01": list(models)}, "options": options}
    return parse_spec(yaml.safe_dump(document), "test")


CHECKED = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@CHECKED
@given(hosts(), specs(), st.randoms(use_true_random=False))
def test_the_same_facts_and_spec_give_the_same_plan(raw: dict[str, Any], spec: Spec, random: Any) -> None:
    plan = plan_host(spec, Machine(raw).host)
    shuffled = copy.deepcopy(raw)
    random.shuffle(shuffled["pci"])
    shuffled["files"] = dict(sorted(shuffled["files"].items(), reverse=True))
    assert plan_host(spec, Machine(shuffled).host).to_dict() == plan.to_dict()


@CHECKED
@given(hosts(), specs())
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(raw: dict[str, Any], spec: Spec) -> None:
    machine = Machine(raw)
    plan = plan_host(spec, machine.host)
    assume(not plan.refused)
    machine.carry_out(plan, reboot=False)
    host_plan = plan_host(spec, machine.host)
    assert [op.describe() for op in host_plan.operations if not isinstance(op, Reboot)] == []
    assert host_plan.reboot == plan.reboot or host_plan.refused
    machine.boot()
    booted = plan_host(spec, machine.host)
    if not booted.refused:  # groups that show only now may refuse
        assert [op.describe() for op in booted.operations] == []
        assert verify_host(spec, machine.host, machine.images).passed


@CHECKED
@given(hosts(), specs(), st.data())
def test_a_run_that_breaks_anywhere_is_finished_by_the_next(
    raw: dict[str, Any], spec: Spec, data: st.DataObject
) -> None:
    machine, complete = Machine(raw), Machine(raw)
    plan = plan_host(spec, machine.host)
    assume(plan.operations and not plan.refused)
    assume(not any(isinstance(op, RemoveFile) for op in plan.operations))
    for operation in plan.operations[: data.draw(st.integers(0, len(plan.operations)))]:
        machine.do(operation, reboot=False)
    machine.carry_out(plan_host(spec, machine.host), reboot=False)
    complete.carry_out(plan, reboot=False)
    assert machine.texts() == complete.texts()
    assert machine.raw["boot"]["entries"] == complete.raw["boot"]["entries"]
    assert machine.images == complete.images


def test_a_run_that_breaks_before_the_menu_is_generated_is_finished_by_the_next() -> None:
    """The menu lacks an argument of the operator's configuration, although it is newer; gpustack writes no drop-in."""
    raw = copy.deepcopy(BASE)
    raw["files"]["/etc/default/grub.d/50-a.cfg"] = {
        "text": 'GRUB_CMDLINE_LINUX_DEFAULT="intel_iommu=on"\n',
        "mode": "0644",
        "mtime_ns": raw["boot"]["config_mtime"] - 10**9,
    }
    models = {"k4200": {"match": {"vendor": "10de", "product": "11b4"}}}
    document = {"version": 1, "models": models, "hosts": {"gpu01": ["k4200"]}, "options": {"iommu_pt": False}}
    spec = parse_spec(yaml.safe_dump(document), "test")
    plan = plan_host(spec, Machine(raw).host)
    commands = [operation.argv for operation in plan.operations if isinstance(operation, RunCommand)]
    assert commands[-1] == ("update-grub",)
    for done in range(len(plan.operations) - 1):
        machine = Machine(copy.deepcopy(raw))
        for operation in plan.operations[:done]:
            machine.do(operation, reboot=False)
        again = plan_host(spec, machine.host)
        assert not again.refused
        machine.carry_out(again, reboot=False)
        assert "intel_iommu=on" in machine.raw["boot"]["entries"][0]["arguments"]


@CHECKED
@given(hosts(), specs())
def test_nothing_that_another_device_uses_is_blacklisted(raw: dict[str, Any], spec: Spec) -> None:
    plan = plan_host(spec, Machine(raw).host)
    going = {address for gpu in plan.gpus for address in gpu.functions}
    used = {
        canonical(name)
        for entry in raw["pci"]
        if entry["address"] not in going
        for name in [entry["driver"], *entry["modules"]]
        if name
    }
    text = written(plan).get("/etc/modprobe.d/gpustack.conf", "")
    assert not {canonical(s.module) for s in parse(text, "f") if s.command == "blacklist"} & used


@CHECKED
@given(
    st.lists(st.sampled_from(range(8)), min_size=1, max_size=8, unique=True),
    st.lists(st.sampled_from(range(8)), min_size=1, max_size=8, unique=True),
    st.sampled_from(["vfio-pci", "pci-stub"]),
)
def test_any_of_identical_cards_can_go_and_the_others_stay(first: list[int], second: list[int], driver: str) -> None:
    raw = copy.deepcopy(BASE)
    raw["pci"] = [entry for entry in raw["pci"] if entry["vendor"] != "10de"]
    for number in range(8):
        for function, (product, pci_class, module) in enumerate(
            [("11b4", "030000", "nouveau"), ("0e0a", "040300", "snd_hda_intel")]
        ):
            entry = {"address": f"0000:{0x20 + number:02x}:00.{function}", "vendor": "10de", "product": product}
            entry |= {"class": pci_class, "modules": [module], "driver": module, "reset_methods": ["bus"]}
            raw["pci"].append(entry)
    machine = Machine(raw)
    for chosen in (first, second):
        addresses = [f"0000:{0x20 + number:02x}:00.0" for number in chosen]
        match = {"vendor": "10de", "product": "11b4", "addresses": addresses}
        models = {"k4200": {"match": match, "driver": driver}}
        spec = parse_spec(yaml.safe_dump({"version": 1, "models": models, "hosts": {"gpu01": ["k4200"]}}), "test")
        plan = plan_host(spec, machine.host)
        assert not plan.refused
        machine.carry_out(plan)
        going = {address[:-1] for address in addresses}
        for entry in machine.raw["pci"]:
            if entry["vendor"] == "10de":
                assert entry["driver"] == (driver if entry["address"][:-1] in going else entry["modules"][0])
        assert plan_host(spec, machine.host).operations == ()
        assert verify_host(spec, machine.host, machine.images).passed


LINES = {
    "/etc/default/grub.d/90-gpustack.cfg": re.compile(
        r'#.*|GRUB_CMDLINE_LINUX_DEFAULT="\$GRUB_CMDLINE_LINUX_DEFAULT( [A-Za-z0-9_.-]+=[A-Za-z0-9:,]+)+"'
    ),
    "/etc/modprobe.d/gpustack.conf": re.compile(
        r"|#.*|options (vfio-pci|pci-stub) ids=[0-9a-f:,]+|blacklist [\w.+-]+"
        r"|softdep [\w.+-]+ pre:( vfio-pci| pci-stub)+"
    ),
    "/etc/modules-load.d/gpustack.conf": re.compile(r"#.*|[a-z0-9_]+"),
    DRACUT: re.compile(
        r'#.*|force_drivers\+="( [a-z0-9_]+)+ "|install_items\+=" /etc/modprobe.d/gpustack.conf "'
        r'|add_dracutmodules\+=" gpustack "'
    ),
}


KEEP = re.compile(
    r"keep [0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7] (vfio-pci|pci-stub) [0-9a-f]{4} [0-9a-f]{4}"
    r" ([0-9a-f]{4}|-) ([0-9a-f]{4}|-) [0-9a-f]{6}( take)?"
)
TEMPLATES = jinja2.Environment(  # noqa: S701
    loader=jinja2.FileSystemLoader(share_dir("templates") / "host"), keep_trailing_newline=True
)
SCRIPTS = {SCRIPT: "initramfs-script.sh.j2", DRACUT_SCRIPT: "dracut-script.sh.j2", DRACUT_MODULE: "dracut-module.sh.j2"}


@CHECKED
@given(hosts(), specs())
def test_no_word_of_a_host_reaches_a_shell(raw: dict[str, Any], spec: Spec) -> None:
    plan = plan_host(spec, Machine(raw).host)
    for path, text in written(plan).items():
        if path in LINES:
            assert [line for line in text.splitlines() if not LINES[path].fullmatch(line)] == []
        elif path in SCRIPTS:
            keeps = [line for line in text.splitlines() if line.startswith("keep ")]
            assert [line for line in keeps if not KEEP.fullmatch(line)] == []
            body = "".join(line for line in text.splitlines(keepends=True) if line not in (f"{k}\n" for k in keeps))
            body = re.sub(r"#[^\n]*[0-9a-f]{64}\n\Z", "", body)  # the checksum of the lines above it
            assert body == TEMPLATES.get_template(SCRIPTS[path]).render(devices=[])
        else:
            (loop,) = (line for line in text.splitlines() if line.startswith("for "))
            assert re.fullmatch(r"for module in ([a-z0-9_]+ ?)+; do", loop)
    for operation in plan.operations:
        if isinstance(operation, RunCommand):
            assert all(re.fullmatch(r"[A-Za-z0-9._+~/-]+", argument) for argument in operation.argv)


@CHECKED
@given(hosts(), specs())
def test_only_functions_of_cards_are_ever_bound(raw: dict[str, Any], spec: Spec) -> None:
    plan = plan_host(spec, Machine(raw).host)
    functions = {entry["address"]: entry for entry in raw["pci"]}
    bound = [functions[address] for address in plan.expected.get("functions", ())]
    assert [f["class"] for f in bound if not f["class"].startswith(("03", "12", "04", "0c03", "0c80", "0680"))] == []
    texts = "".join(text for path, text in written(plan).items() if path.startswith("/etc/modprobe.d/"))
    listed = {ids for value in re.findall(r"ids=(\S+)", texts) for ids in value.split(",")}
    going = {f["address"] for f in bound}
    staying = {f"{f['vendor']}:{f['product']}" for a, f in functions.items() if a not in going}
    assert listed & staying == set()


@CHECKED
@given(hosts(), specs())
def test_a_refused_plan_does_nothing_and_every_plan_can_be_shown(raw: dict[str, Any], spec: Spec) -> None:
    plan = plan_host(spec, Machine(raw).host)
    if plan.refused:
        assert not plan.operations
        assert not plan.reboot
    assert all(c.isprintable() or c in "\n\t" for c in show_plan(plan, diffs=True))


def written(plan: HostPlan) -> dict[str, str]:
    return {op.path: op.content for op in plan.operations if isinstance(op, WriteFile)}
