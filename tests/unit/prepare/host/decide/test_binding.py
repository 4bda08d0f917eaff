"""What is hard to write as a case: many ids, and that every finding of the plan's range is shown by a test."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpustack.base.findings import Code, definitions
from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.store import parse_host
from gpustack.prepare.host.desired import desire
from gpustack.prepare.host.own_files import MODPROBE
from gpustack.prepare.host.plan import plan_host
from gpustack.spec.load import parse_spec
from support.boot_simulation import Machine
from support.host_cases import load
from support.host_samples import changed, snapshot
from support.sysroot import HDA, NOUVEAU, NVIDIAFB, talk_host

HERE = Path(__file__).parents[1]


def test_more_ids_than_the_kernel_keeps_are_refused() -> None:
    count = 110
    cards = {
        f"0000:{0x20 + n // 8:02x}:{n % 8:02x}.0": {
            "vendor": "10de",
            "product": f"{0x2000 + n:04x}",
            "class": "030000",
            "modules": ["nouveau"],
            "driver": "nouveau",
            "reset_methods": ["bus"],
        }
        for n in range(count)
    }
    models = {f"m{n}": {"match": {"vendor": "10de", "product": f"{0x2000 + n:04x}"}} for n in range(count)}
    spec = parse_spec(yaml.safe_dump({"version": 1, "models": models, "hosts": {"gpu01": list(models)}}), "test")
    plan = plan_host(spec, Machine(changed(snapshot("k4200"), {"pci": cards})).host)
    assert [f.code for f in plan.findings if f.severity == "error"] == ["GPU116"]
    assert "1099 characters" in plan.findings[0].message


MODULES = ("vfio", "vfio_iommu_type1", "vfio_pci", "vfio_pci_core", "vfio_virqfd", "iommufd", "irqbypass")
SPEC = {
    "version": 1,
    "models": {"k4200": {"match": {"vendor": "10de", "product": "11b4"}}},
    "hosts": {"gpu01": ["k4200"]},
}


def messages(files: dict[str, str], code: Code = Code.NEEDED_MODULE_DISABLED) -> list[str]:
    """The messages with a code, by default those about disabled modules, on a host with these files."""
    host = Machine(changed(snapshot("k4200"), {"files": files})).host
    findings = plan_host(parse_spec(yaml.safe_dump(SPEC), "test"), host).findings
    return [finding.message for finding in findings if finding.code == code]


@pytest.mark.parametrize("module", MODULES)
def test_each_module_of_vfio_must_be_loadable(module: str) -> None:
    (message,) = messages({"/etc/modprobe.d/local.conf": f"install {module} /bin/false\n"})
    assert f"install {module} /bin/false" in message


@pytest.mark.parametrize("module", MODULES)
def test_a_blacklist_stops_only_modules_that_are_loaded_by_name(module: str) -> None:
    """modprobe loads a blacklisted module as a dependency of another one."""
    found = messages({"/etc/modprobe.d/local.conf": f"blacklist {module}\n"})
    assert len(found) == (module in ("vfio_iommu_type1", "vfio_pci"))


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ("modprobe.blacklist=vfio-pci", 1),
        ("rd.driver.blacklist=nouveau,vfio_iommu_type1", 1),
        ("modprobe.blacklist=nouveau rd.driver.blacklist=nvidia", 0),
        ("modprobe.blacklist=vfio_pci_core", 0),  # modprobe loads it as a dependency
        ("module_blacklist=vfio_pci_core", 1),  # the kernel does not
        ("module_blacklist=vfio-pci", 0),  # nor does it treat - and _ as equal
        ("module_blacklist=vfio_pci module_blacklist=nouveau", 0),  # it uses the last one
        ("module_blacklist=nouveau module_blacklist=vfio_pci", 1),
        ("initcall_blacklist=vfio_pci_init", 1),
        ("initcall_blacklist=vfio_pci", 0),
        ("vfio_pci_init=vfio_pci_init", 0),
    ],
)
def test_kernel_arguments_that_keep_a_module_of_vfio_out(arguments: str, count: int) -> None:
    assert len(messages({"/etc/default/grub": f'GRUB_CMDLINE_LINUX="{arguments}"\n'})) == count


@pytest.mark.parametrize(
    ("line", "is_off"),
    [
        ("install vfio* /bin/false", True),
        ("alias vfio-pci off", True),
        ("alias nouveau off", False),
        ("alias pci:v000010DE* vfio_pci", False),
        ("blacklist vfio*", False),
    ],
)
def test_modprobe_reads_patterns_and_aliases(line: str, is_off: bool) -> None:
    """Of kmod 30: patterns count for install, a blacklist names modules exactly, an alias comes before its module."""
    host = Machine(changed(snapshot("k4200"), {"files": {"/etc/modprobe.d/off.conf": f"{line}\n"}})).host
    findings = plan_host(parse_spec(yaml.safe_dump(SPEC), "test"), host).findings
    places = [f.place for f in findings if f.code == "GPU140"]
    assert set(places) == ({"gpu01 /etc/modprobe.d/off.conf:1"} if is_off else set())


def test_each_boot_entry_has_a_module_blacklist_of_its_own() -> None:
    """The last argument of one command line counts; an entry is not a later part of another one."""
    _case, spec, machine = load(HERE / "cases/systemd-boot-cmdline.yaml")
    entries = [dict(entry) for entry in machine.raw["boot"]["entries"]]
    for entry, module in zip(entries, ("vfio_pci", "nouveau"), strict=True):
        entry["arguments"] += f" module_blacklist={module}"
    host = Machine(changed(machine.raw, {"set": {"boot.entries": entries}})).host
    findings = [f for f in plan_host(spec, host).findings if f.code == Code.NEEDED_MODULE_DISABLED]
    assert [entries[0]["source"] in finding.place for finding in findings] == [True]


@pytest.mark.parametrize(
    ("option", "count"),
    [
        ("vfio-pci ids=10de:11b4,10de:0e0a", 0),
        ("vfio-pci ids=10de:11b4", 1),
        ("vfio-pci ids=8086:1572", 1),  # modprobe appends the options of gpustack: the kernel uses one of the lists
        ("pci-stub ids=10de:0e0a", 1),
        ("pci-stub ids=8086:1572", 0),  # neither the driver nor the device concerns gpustack
    ],
)
def test_ids_by_hand_are_a_conflict_if_they_differ(option: str, count: int) -> None:
    assert len(messages({"/etc/modprobe.d/local.conf": f"options {option}\n"}, Code.IDS_CONFLICT)) == count


@pytest.mark.parametrize(
    ("address", "override", "count"),
    [
        ("0000:84:00.0", "nouveau\n", 1),
        ("0000:84:00.0", "", 1),
        ("0000:84:00.0", "vfio-pci\n", 0),
        ("0000:01:00.0", "igb\n", 0),  # not passed through
    ],
)
def test_an_override_of_driverctl_is_a_conflict_on_a_gpu_that_is_passed_through(
    address: str, override: str, count: int
) -> None:
    assert len(messages({f"/etc/driverctl.d/pci-{address}": override}, Code.DRIVERCTL_CONFLICTS)) == count


@pytest.mark.parametrize(
    ("card", "binding"),
    [
        ("nouveau", {"driver": "nouveau", "modules": []}),
        ("nouveau", {"driver": None, "modules": ["nouveau"]}),
        ("nvidia", {"driver": "nvidia_uvm", "modules": []}),
        ("nova_core", {"driver": "nova_drm", "modules": []}),
    ],
)
def test_a_stack_that_a_device_of_the_host_uses_or_matches_is_not_blacklisted(
    card: str, binding: dict[str, object]
) -> None:
    cards = {address: {"modules": [card], "driver": card} for address in ("0000:84:00.0", "0000:88:00.0")}
    device = {"vendor": "1b36", "product": "0042", "class": "118000", **binding}
    host = Machine(changed(snapshot("k4200"), {"pci": {**cards, "0000:01:00.0": device}})).host
    findings = plan_host(parse_spec(yaml.safe_dump(SPEC), "test"), host).findings
    (finding,) = [finding for finding in findings if finding.code == Code.HOST_DRIVER_NOT_BLACKLISTED]
    assert "0000:01:00.0" in finding.place
    assert card in finding.message


ALIASES = (NOUVEAU, NVIDIAFB, HDA, ("pci:v000010DEd00000E0Asv*sd*bc04sc03i00*", "another-audio"))
RELEASES = ("6.1.0-37-amd64", "6.12.1-cloud-amd64")
OF_THE_HOST = ("pci:v00008086d00001521sv*sd*bc02sc00i00*", "nvidia")  # a device of the host that needs the stack
BY_KERNEL = st.fixed_dictionaries({r: st.sets(st.sampled_from([*ALIASES, OF_THE_HOST])) for r in RELEASES})


@settings(max_examples=25, deadline=None)
@given(BY_KERNEL)
@example(dict(zip(RELEASES, ({NOUVEAU, HDA}, set()), strict=True)))
def test_the_file_is_the_same_whichever_kernel_runs(by_kernel: dict[str, set[tuple[str, str]]]) -> None:
    """Kernel packages differ: Debian's for clouds has no drivers of GPUs and sound cards."""
    modules = {module.replace("-", "_") for aliases in by_kernel.values() for _, module in aliases}
    with tempfile.TemporaryDirectory() as directory:
        root = talk_host(Path(directory))
        for release, aliases in by_kernel.items():
            root.kernel(release, aliases=sorted(aliases))
        contents = set()
        for release in RELEASES:
            root.write("/proc/sys/kernel/osrelease", f"{release}\n")
            facts = collect(directory)
            for function in facts["pci"]:
                function["driver"] = next(iter(function["modules"]), None)
            host = parse_host(facts, "test")
            contents.add(desire(parse_spec(yaml.safe_dump(SPEC), "test"), host).files[MODPROBE].content)
    (content,) = contents
    wanted = modules - {"nvidia"} | {"nouveau", "nvidiafb"}  # a GPU's vendor has known drivers
    for module in wanted:
        assert f"softdep {module} pre: vfio-pci\n" in content
    assert ("blacklist nvidia\n" in content) == ("nvidia" not in modules)


def test_every_finding_of_the_plan_and_of_the_verification_is_shown_by_a_test() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (*HERE.glob("cases/*.yaml"), *HERE.rglob("test_*.py"))]
    texts += [path.read_text(encoding="utf-8") for path in (HERE.parents[1] / "hosts/readiness").glob("test_*.py")]
    text = "\n".join(texts)
    assert [code for code in definitions() if code.startswith(("GPU1", "GPU2")) and code not in text] == []
