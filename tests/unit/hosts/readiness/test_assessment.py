"""Readiness: each code has a host that brings it out, and one that is spared."""

from __future__ import annotations

import re

import pytest

from gpustack.base.findings import Severity, definitions
from gpustack.hosts.facts.gpus import gpus
from gpustack.hosts.facts.store import parse_host
from gpustack.hosts.readiness.assessment import PREPARATION, UNKNOWN, State, assess, idle, needs, peers
from gpustack.hosts.readiness.host import host_reasons, size
from support.host_samples import first_gpu, function, host, raw_host, snapshot

NIC = {"ids": "8086:1572", "pci_class": "020000"}
USB = {"ids": "10de:1ad8", "pci_class": "0c0330", "driver": "xhci_hcd"}


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        pytest.param(
            function("0000:89:00.0", **NIC, driver="i40e", uses={"net": [{"name": "ens3f0", "state": "up"}]}),
            "0000:89:00.0 (network controller, driver i40e, interface ens3f0 (up))",
            id="network in another slot",
        ),
        pytest.param(
            function("0000:88:00.1", **NIC, driver="mlx5_core"),
            "0000:88:00.1 (network controller, driver mlx5_core)",
            id="network in the GPU's own slot",
        ),
        pytest.param(function("0000:89:00.0", **NIC, driver=None), None, id="network without a driver"),
        pytest.param(function("0000:89:00.0", **NIC, driver="vfio-pci"), None, id="network bound for guests"),
        pytest.param(
            function("0000:89:00.0", ids="144d:a808", pci_class="010802", driver="nvme", uses={"block": ["nvme0n1"]}),
            "0000:89:00.0 (storage controller, driver nvme, disk nvme0n1)",
            id="storage",
        ),
        pytest.param(function("0000:88:00.2", **USB), None, id="the card's USB controller, nothing behind it"),
        pytest.param(
            function("0000:88:00.2", **USB, uses={"usb": ["ACME Keyboard"], "input": ["event3"]}),
            "0000:88:00.2 (USB controller, driver xhci_hcd, USB: ACME Keyboard, input event3)",
            id="the card's USB controller with the keyboard",
        ),
        pytest.param(
            function("0000:88:00.2", **USB, uses={"usb": ["FTDI FT232R USB UART"]}),
            "0000:88:00.2 (USB controller, driver xhci_hcd, USB: FTDI FT232R USB UART)",
            id="the card's USB controller with a serial adapter",
        ),
        pytest.param(
            function("0000:00:14.0", **USB), "0000:00:14.0 (USB controller, driver xhci_hcd)", id="the board's USB"
        ),
        pytest.param(
            function("0000:88:00.1", ids="10de:0e0a", pci_class="040300", driver="snd_hda_intel"),
            None,
            id="the card's audio",
        ),
        pytest.param(
            function("0000:00:1f.4", ids="8086:a323", pci_class="0c0500", driver="i801_smbus"),
            "0000:00:1f.4 (SMBus controller, driver i801_smbus)",
            id="anything else of the board",
        ),
        pytest.param(
            function("0000:03:00.0", ids="1a03:2000", pci_class="030000", driver="ast"),
            "0000:03:00.0 (VGA controller, driver ast)",
            id="the console",
        ),
        pytest.param(
            function("0000:c4:00.0", ids="10de:1af1", pci_class="068000", driver="nvidia-nvswitch"), None, id="NVSwitch"
        ),
        pytest.param(
            function("0000:00:00.0", ids="8086:3e30", pci_class="060000", driver="ie31200_edac"),
            "0000:00:00.0 (host bridge, driver ie31200_edac)",
            id="a host bridge that a driver has",
        ),
        pytest.param(
            function("0000:87:00.0", ids="8086:6f02", pci_class="060400", driver="pcieport"), None, id="a bridge"
        ),
    ],
)
def test_one_other_member_of_the_group(member, expected):
    facts = host(GPU, member)
    gpu = next(g for g in gpus(facts) if g.main.address == "0000:88:00.0")
    assert [str(need) for need in needs(facts, gpu)] == ([expected] if expected else [])


def test_another_gpu_is_a_peer_and_its_audio_goes_along():
    facts = host(
        GPU,
        function("0000:84:00.0", driver="nouveau"),
        function("0000:84:00.1", ids="10de:0e0a", pci_class="040300", driver="snd_hda_intel"),
    )
    gpu = gpus(facts)[1]
    assert gpu.main.address == "0000:88:00.0"
    assert needs(facts, gpu) == ()
    assert [f.address for f in peers(gpu)] == ["0000:84:00.0"]


def test_virtual_functions_of_a_peer_are_no_members_without_a_driver():
    peer = function("0000:89:00.0", sriov_totalvfs=16, sriov_numvfs=1)
    part = function("0000:89:00.4", driver=None, physical_function="0000:89:00.0")
    other = function("0000:8a:00.0", **NIC, driver=None)
    facts = host(GPU, peer, part, other)
    assert [f.address for f in idle(facts, gpus(facts)[0])] == ["0000:8a:00.0"]


def test_the_nic_of_a_shared_group_is_named():
    facts = parse_host(snapshot("shared-nic"), "shared-nic")
    assert [need.function.address for need in needs(facts, first_gpu(facts))] == ["0000:1b:00.0"]
    assert needs(facts, gpus(facts)[1]) == ()


GPU = function("0000:88:00.0")
ACTIVE = {"acpi_tables": ["DMAR"], "units": ["dmar0"], "group_count": 9, "interrupt_remapping": True}
OFF = {"acpi_tables": ["DMAR"], "units": [], "group_count": 0}


NONE = {"acpi_tables": [], "tables_listed": False, "units": [], "group_count": 0}
INTEL = {"vendor": "GenuineIntel"}


def reserved(*types):
    return {"number": 1, "devices": [], "reserved": [{"start": 0, "end": 0xFFF, "type": kind} for kind in types]}


def ungrouped(**more):
    return function("0000:88:00.0", iommu_group=None, **more)


def unread(*paths):
    return [{"path": path, "error": "Permission denied"} for path in paths]


def findings(facts, gpu):
    assessed = assess(facts, gpu)
    return (*assessed.reasons, *assessed.notes)


def notable(findings):
    """Codes that are about this host, not merely notes of the catalogue about the card."""
    return {f.code for f in findings} - {"GPU022"}


HOSTS = {
    "a prepared host": (raw_host(GPU), set()),
    "no IOMMU in the firmware": (
        raw_host(ungrouped(), iommu={"acpi_tables": [], "units": [], "group_count": 0}),
        {"GPU001"},
    ),
    "no IOMMU on a machine of another kind": (
        raw_host(ungrouped(), iommu=NONE, architecture="ppc64le"),
        {"GPU001"},
    ),
    "tables that a container hides": (raw_host(ungrouped(), iommu=NONE, container="docker"), {"GPU005", "GPU032"}),
    "tables that were not captured": (raw_host(ungrouped(), iommu=NONE, root="/mnt/capture"), {"GPU032"}),
    "a virtual machine": (
        raw_host(ungrouped(), iommu={**NONE, "tables_listed": True}, cpu={**INTEL, "flags": ["vmx", "hypervisor"]}),
        {"GPU033"},
    ),
    "virtualization off": (raw_host(GPU, cpu={**INTEL, "flags": []}), {"GPU031"}),
    "virtualization on": (raw_host(GPU, cpu={**INTEL, "flags": ["vmx"]}), set()),
    "a group that vfio made up": (
        raw_host(ungrouped(), iommu={**OFF, "no_iommu_mode": True}),
        {"GPU002", "GPU030"},
    ),
    "a member of the group that is no PCI function": (
        raw_host(GPU, iommu={**ACTIVE, "groups": [{"number": 1, "devices": ["0000:88:00.0", "AMDI0020:00"]}]}),
        {"GPU024"},
    ),
    "a reserved region": (raw_host(GPU, iommu={**ACTIVE, "groups": [reserved("direct")]}), {"GPU028"}),
    "reserved regions that do no harm": (
        raw_host(GPU, iommu={**ACTIVE, "groups": [reserved("direct-relaxable", "msi", "reserved")]}),
        set(),
    ),
    "a card that fell off the bus": (raw_host(function("0000:88:00.0", responds=False)), {"GPU027"}),
    "audio that fell off the bus": (
        raw_host(GPU, function("0000:88:00.1", ids="10de:0e0a", pci_class="040300", responds=False)),
        {"GPU027"},
    ),
    "a card that answers": (raw_host(function("0000:88:00.0", responds=True)), set()),
    "an IOMMU that is off": (raw_host(ungrouped(), iommu=OFF), {"GPU002"}),
    "an IOMMU that is off, tables unread": (
        raw_host(
            ungrouped(), iommu={**OFF, "acpi_tables": []}, unread=unread("/sys/firmware/acpi/tables"), privileged=False
        ),
        {"GPU002", "GPU006"},
    ),
    "no interrupt remapping": (raw_host(GPU, iommu={**ACTIVE, "interrupt_remapping": False}), {"GPU003"}),
    "no interrupt remapping, accepted": (
        raw_host(GPU, iommu={**ACTIVE, "interrupt_remapping": False, "unsafe_interrupts": True}),
        {"GPU004"},
    ),
    "interrupt remapping unknown": (raw_host(GPU, iommu={**ACTIVE, "interrupt_remapping": None}), set()),
    "Arm, where interrupts are no matter of remapping": (
        raw_host(GPU, iommu={**ACTIVE, "interrupt_remapping": False}, architecture="aarch64"),
        set(),
    ),
    "a container": (raw_host(GPU, container="docker"), {"GPU005"}),
    "unread files": (raw_host(GPU, unread=unread("/boot/grub/grub.cfg")), {"GPU006"}),
    "Secure Boot": (raw_host(GPU, kernel={"secure_boot": True, "lockdown": "none"}), {"GPU007"}),
    "lockdown": (raw_host(GPU, kernel={"secure_boot": None, "lockdown": "integrity"}), {"GPU007"}),
    "NVSwitches": (
        raw_host(GPU, function("0000:c4:00.0", ids="10de:1af1", pci_class="068000", iommu_group=2)),
        {"GPU008"},
    ),
    "more windows than addresses": (
        raw_host(
            function("0000:88:00.0", bars=[{"index": 1, "start": 1 << 38, "size": 1 << 39}]),
            cpu={"physical_address_bits": 39},
            memory_mib=1,
        ),
        {"GPU009"},
    ),
    "just enough addresses": (
        raw_host(
            function("0000:88:00.0", bars=[{"index": 1, "start": 1 << 38, "size": 1 << 38}]),
            cpu={"physical_address_bits": 39},
            memory_mib=1 << 18,
        ),
        set(),
    ),
    "a host driver": (raw_host(function("0000:88:00.0", driver="nouveau")), {"GPU010"}),
    "a host driver on the audio function": (
        raw_host(GPU, function("0000:88:00.1", ids="10de:0e0a", pci_class="040300", driver="snd_hda_intel")),
        {"GPU010"},
    ),
    "a keyboard behind the card, the group not known yet": (
        raw_host(
            ungrouped(),
            function(
                "0000:88:00.2",
                ids="10de:1ad8",
                pci_class="0c0330",
                driver="xhci_hcd",
                iommu_group=None,
                uses={"input": ["event3"]},
            ),
            iommu=OFF,
        ),
        {"GPU002", "GPU034"},
    ),
    "no driver": (raw_host(function("0000:88:00.0", driver=None)), {"GPU011"}),
    "pci-stub": (raw_host(function("0000:88:00.0", driver="pci-stub")), set()),
    "no group": (raw_host(ungrouped()), {"GPU012"}),
    "a group unread": (
        raw_host(ungrouped(), unread=unread("/sys/bus/pci/devices/0000:88:00.0/iommu_group")),
        {"GPU006", "GPU024"},
    ),
    "all groups unread": (
        raw_host(ungrouped(), iommu=OFF, unread=unread("/sys/kernel/iommu_groups")),
        {"GPU006", "GPU024"},
    ),
    "a NIC in the group": (
        raw_host(GPU, function("0000:89:00.0", ids="8086:1572", pci_class="020000", driver="i40e")),
        {"GPU013"},
    ),
    "a NIC in the group, its driver not loaded": (
        raw_host(GPU, function("0000:89:00.0", ids="8086:1572", pci_class="020000", driver=None, modules=["i40e"])),
        {"GPU026"},
    ),
    "a console without a driver in the group": (
        raw_host(GPU, function("0000:89:00.0", ids="1a03:2000", pci_class="030000", driver=None, modules=["ast"])),
        {"GPU025"},
    ),
    "two GPUs in a group, one on a host driver": (
        raw_host(GPU, function("0000:89:00.0", driver="nouveau")),
        {"GPU010", "GPU014"},
    ),
    "two GPUs in a group": (raw_host(GPU, function("0000:89:00.0")), {"GPU014"}),
    "the boot display": (raw_host(function("0000:88:00.0", boot_vga=True)), {"GPU015"}),
    "a boot framebuffer": (raw_host(function("0000:88:00.0", claims=["BOOTFB"])), {"GPU016"}),
    "simpledrm": (raw_host(function("0000:88:00.0", claims=["simpledrm"])), {"GPU016"}),
    "its own driver's claim": (raw_host(function("0000:88:00.0", claims=["vfio-pci", "nouveau"])), set()),
    "virtual functions": (raw_host(function("0000:88:00.0", sriov_totalvfs=16, sriov_numvfs=4)), {"GPU017"}),
    **{
        f"a virtual function on {driver}, {more}": (
            raw_host(
                function("0000:88:00.0", sriov_numvfs=1),
                function("0000:88:00.4", physical_function="0000:88:00.0", driver=driver, iommu_group=90, **more),
            ),
            expected,
        )
        for driver, more, expected in (
            ("vfio-pci", {}, {"GPU017", "GPU035"}),
            ("nvidia", {"mediated": ["vGPU type 711"]}, {"GPU017", "GPU035"}),
            ("nvidia", {"mediated": ["vGPU type 711"], "holders": []}, {"GPU017"}),
            ("nvidia", {"mediated": ["vGPU type 711"], "holders": ["instance 5ae5d3a1"]}, {"GPU017", "GPU035"}),
            ("nvidia", {"mediated": ["5ae5d3a1-4c61-4f0e-9c4b-6a2f3b1d7c90"], "holders": []}, {"GPU017", "GPU035"}),
            ("nvidia", {}, {"GPU017"}),
            ("i915", {}, {"GPU017"}),
            (None, {}, {"GPU017"}),
        )
    },
    "GPU instances of MIG": (
        raw_host(function("0000:88:00.0", driver="nvidia", mig_instances=2)),
        {"GPU010", "GPU036"},
    ),
    "a GPU without instances of MIG": (
        raw_host(function("0000:88:00.0", driver="nvidia", mig_instances=0)),
        {"GPU010"},
    ),
    "vGPUs of the host driver": (
        raw_host(function("0000:88:00.0", driver="nvidia", mediated_types=["nvidia-63 (GRID P40-1Q)"])),
        {"GPU010", "GPU877"},
    ),
    "the capability alone": (raw_host(function("0000:88:00.0", sriov_totalvfs=16, sriov_numvfs=0)), set()),
    "no reset": (raw_host(function("0000:88:00.0", reset_methods=[])), {"GPU018"}),
    "an old kernel's reset": (raw_host(function("0000:88:00.0", reset_methods=["unspecified"])), set()),
    "trouble with resets": (raw_host(function("0000:88:00.0", ids="1002:74a1", pci_class="120000")), {"GPU019"}),
    "a wide domain": (raw_host(function("10000:88:00.0")), {"GPU020"}),
    "a BAR without an address": (
        raw_host(function("0000:88:00.0", bars=[{"index": 1, "start": 0, "size": 16 << 30}])),
        {"GPU021"},
    ),
    "an I/O BAR at 0": (
        raw_host(function("0000:88:00.0", bars=[{"index": 5, "start": 0, "size": 128, "io": True}])),
        set(),
    ),
    "a variant driver": (raw_host(function("0000:88:00.0", driver="nvgrace_gpu_vfio_pci")), {"GPU023"}),
}


@pytest.mark.parametrize("name", HOSTS)
def test_codes(name):
    raw, expected = HOSTS[name]
    facts = parse_host(raw, name)
    gpu = first_gpu(facts)
    assert notable(host_reasons(facts)) | notable(findings(facts, gpu)) == expected
    grave = {code for code in expected if definitions()[code].severity is Severity.ERROR} | {"GPU017"}
    states = {State.BLOCKED: grave, State.UNKNOWN: UNKNOWN, State.PREPARABLE: PREPARATION, State.READY: expected}
    assessed = assess(facts, gpu)
    assert assessed.state == next((state for state, codes in states.items() if codes & expected), State.READY)
    assert assessed.ready == (assessed.state is State.READY)


def test_every_code_has_a_host():
    """GPU022, the catalogue's notes, stands alone below."""
    covered = {code for _, expected in HOSTS.values() for code in expected}
    assert covered | {"GPU022"} == {code for code in definitions() if code < "GPU100"} | {"GPU877"}


def test_notes_of_the_catalogue():
    facts = parse_host(snapshot("k4200-prepared"), "k4200-prepared")
    assessed = assess(facts, first_gpu(facts))
    assert assessed.ready
    assert [(f.code, f.severity, f.message) for f in assessed.notes] == [
        ("GPU022", "info", "The last guest driver branch is R470")
    ]


def test_a_grave_note_is_a_warning():
    facts = host(function("0000:88:00.0", ids="10de:2342"))
    grave = [f for f in findings(facts, first_gpu(facts)) if f.severity is Severity.WARNING]
    assert [f.message for f in grave] == ["Needs the vfio variant driver nvgrace_gpu_vfio_pci"]


def test_the_reasons_name_drivers_but_not_what_the_host_keeps():
    facts = parse_host(snapshot("shared-nic"), "shared-nic")
    assessed = assess(facts, first_gpu(facts))
    nic = "0000:1b:00.0 (network controller, driver i40e, interface ens3f0 (up))"
    assert [(f.code, f.message) for f in assessed.reasons] == [
        ("GPU013", f"IOMMU group 21 contains devices that the host uses: {nic}"),
        ("GPU010", "not bound to vfio-pci (current driver: nouveau)"),
    ]


def test_the_argument_that_switched_it_off_is_named():
    facts = host(ungrouped(), iommu=OFF, kernel={"command_line": "ro root=/dev/sda1 amd_iommu=off quiet"})
    assert "(amd_iommu=off on its command line)" in host_reasons(facts)[0].message


@pytest.mark.parametrize(
    ("more", "advice", "absent"),
    [
        ({"cpu": {**INTEL, "flags": ["vmx"]}}, "VT-d", "AMD-Vi"),
        ({"cpu": {"vendor": "AuthenticAMD", "flags": ["svm"]}}, "AMD-Vi", "VT-d"),
        ({"architecture": "aarch64"}, "IORT", "VT-d"),
        ({"architecture": "aarch64", "iommu": {**NONE, "acpi_tables": ["IORT"]}}, "found no SMMU", "VT-d"),
        ({"architecture": "ppc64le", "iommu": NONE}, "IOMMU groups", "VT-d"),
    ],
)
def test_advice_on_a_missing_iommu_fits_the_machine(more, advice, absent):
    (finding,) = host_reasons(host(ungrouped(), **{"iommu": {**NONE, "tables_listed": True}, **more}))
    assert finding.code == "GPU001"
    assert advice in f"{finding.message} {finding.remedy}"
    assert absent not in f"{finding.message} {finding.remedy}"


def test_interrupts_of_a_virtual_machine_are_its_hypervisors():
    cpu = {**INTEL, "flags": ["vmx", "hypervisor"]}
    (finding,) = host_reasons(host(GPU, iommu={**ACTIVE, "interrupt_remapping": False}, cpu=cpu))
    assert "intremap=on" in finding.remedy
    assert "firmware" not in finding.remedy


@pytest.mark.parametrize(("release", "severity"), [("5.14.0-70.el9", "warning"), ("6.8.0-31-generic", "error")])
def test_unity_mappings_of_amd_are_refused_by_newer_kernels(release, severity):
    iommu = {**ACTIVE, "acpi_tables": ["IVRS"], "groups": [reserved("direct")]}
    facts = host(GPU, iommu=iommu, kernel={"release": release})
    assert [f.severity for f in findings(facts, first_gpu(facts)) if f.code == "GPU028"] == [severity]


@pytest.mark.parametrize(
    ("release", "needed"),
    [("5.14.0-70.el9", True), ("6-custom", False), ("7.0.1", False), ("9" * 99, False)],
)
def test_since_linux_6_no_argument_frees_the_framebuffer(release, needed):
    facts = host(function("0000:88:00.0", pci_class="030000", claims=["BOOTFB"]), kernel={"release": release})
    remedies = [f.remedy for f in findings(facts, first_gpu(facts)) if f.code == "GPU016"]
    assert ["efifb:off" in remedy for remedy in remedies] == [needed]


@pytest.mark.parametrize(("record", "severity"), [("", "warning"), ("0000:88:00.0 has 4 virtual functions\n", "info")])
def test_gpu_instances_of_vgpus_by_gpustack_are_no_warning(record, severity):
    """Their remedy would end the vGPUs of instances."""
    files = {"/run/gpustack/virtual-functions": {"text": record}}
    facts = host(function("0000:88:00.0", driver="nvidia", mig_instances=2, sriov_numvfs=4), files=files)
    found = findings(facts, first_gpu(facts))
    assert {f.code: f.severity for f in found if f.code in ("GPU017", "GPU036")} == {
        "GPU017": severity,
        "GPU036": severity,
    }


def test_no_finding_about_the_firmware_of_a_mounted_disk():
    off = {**OFF, "acpi_tables": []}
    assert host_reasons(host(iommu=off, boot={"firmware": None})) == ()
    assert [f.code for f in host_reasons(host(iommu=off, boot={"firmware": "bios"}))] == ["GPU001"]


def test_what_holds_the_host_back_is_reported_for_the_host():
    facts = parse_host(snapshot("k4200"), "k4200")
    reported = {(f.code, f.place) for gpu in gpus(facts) for f in findings(facts, gpu) if f.code == "GPU002"}
    assert reported == {("GPU002", "gpu01")}


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (128, "128 B"), (16 << 20, "16 MiB"), (3 << 39, "1.5 TiB"), (10**400, "1.1e+12 TiB")],
)
def test_sizes(number, text):
    assert size(number) == text


def test_definitions_are_whole():
    """Texts that people read: sentences without a trailing period where they are joined, sources that can be found."""
    readiness = {code: d for code, d in definitions().items() if code < "GPU100"}
    for code, definition in readiness.items():
        assert definition.source, code
        assert definition.explanation.strip().endswith("."), code
        assert not definition.message.endswith("."), code
        assert not re.search(r"[0-9a-f]{4}:[0-9a-f]{2}:", definition.message), (
            f"{code}: an address keeps it from being told once"
        )


@pytest.mark.parametrize(("driver", "is_noted"), [("nvgrace_gpu_vfio_pci", False), ("vfio-pci", True)])
def test_coherent_memory_is_noted_without_its_variant_driver(driver, is_noted):
    facts = parse_host(raw_host(function("0009:01:00.0", ids="10de:2941", driver=driver)), "test")
    notes = [note.message for note in assess(facts, first_gpu(facts)).notes if note.code == "GPU022"]
    assert any("variant driver" in note for note in notes) is is_noted
