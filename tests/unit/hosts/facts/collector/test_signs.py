"""Every sign in every form of a log, in both readers: messages that are made from the patterns of the table."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.files import data_dir
from gpustack.base.findings import Code, definitions
from gpustack.hosts.facts.collector.kernel_log import _kind, _words
from gpustack.hosts.facts.collector.signs import MOST_EVENTS, SignTable, normalised
from gpustack.hosts.facts.collector.text import lines
from gpustack.hosts.health.kernel_log import events, rows, table
from gpustack.offer.guest.inside import messages
from support.sign_samples import ADDRESS, FORMS, sample

SIGNS = [row for row in rows() if "pattern" in row and row.get("kind") not in ("join", "xid", "sxid")]
TROUBLE = [row for row in SIGNS if "code" in row]
HARMLESS = [row for row in SIGNS if "code" not in row]
NUMBERED = [row for row in rows() if row.get("number", -1) >= 0 and "pattern" not in row]
RESET = f"vfio-pci {ADDRESS}: not ready 65535ms after FLR; giving up"
READY = f"vfio-pci {ADDRESS}: ready 1023ms after FLR"
START = "Linux version 6.12.107+deb13-amd64 (debian-kernel@lists.debian.org) #1 SMP"


def in_form(form: str, *texts: str) -> list[str]:
    return lines("\n".join(FORMS[form](text, number) for number, text in enumerate(texts)))


def numbered(row: dict[str, Any]) -> str:
    """A message of NVIDIA's driver with the number of a row."""
    kind, _, number = row["id"].partition("-")
    return {
        "xid": f"NVRM: Xid (PCI:{ADDRESS[:-2]}): {number}, pid=1234, name=python, Text",
        "sxid": f"nvidia-nvswitch0: SXid (PCI:{ADDRESS}): {number}, Link 28",
    }[kind]


@pytest.mark.parametrize("form", FORMS)
def test_every_sign_has_its_code_and_address_in_both_readers(form: str) -> None:
    for row in TROUBLE:
        log = in_form(
            form, START, "usb 1-1: new high-speed USB device", sample(row["pattern"]), "eth0: link becomes ready"
        )
        found = [(event.code, event.address) for event in events(log)]
        address = ADDRESS if any(name in row["pattern"] for name in ("<A>", "<P>", "<N>", "<G>")) else None
        assert found == [(row["code"], address)], (row["id"], log)
        codes = {event.get("code") or event["kind"] for event in messages.of_signs(table().events(log))}
        assert codes == {row.get("kind", row["code"]) if row.get("kind") != "xid" else row["code"]}, row["id"]


@pytest.mark.parametrize("form", FORMS)
def test_every_harmless_message_is_quiet(form: str) -> None:
    for row in HARMLESS:
        log = in_form(form, START, sample(row["pattern"]), "eth0: link becomes ready")
        assert not events(log), (row["id"], log)


@pytest.mark.parametrize("form", FORMS)
def test_every_number_has_the_code_of_its_action(form: str) -> None:
    for row in NUMBERED:
        found = [(event.code, event.address) for event in events(in_form(form, numbered(row)))]
        assert found == [(row["code"], ADDRESS)], row["id"]


def test_unknown_numbers_are_unknown() -> None:
    (event,) = events([f"NVRM: Xid (PCI:{ADDRESS}): 999, Something new"])
    assert (event.code, event.severity) == ("GPU917", "warning")
    text = "154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    assert events([f"NVRM: Xid (PCI:{ADDRESS}): {text}"])[0].code == "GPU915"


NVLINK = f"NVRM: Xid (PCI:{ADDRESS[:-2]}): "
SWITCH = f"nvidia-nvswitch1: SXid (PCI:{ADDRESS}): "


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"{NVLINK}145, RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004 0x00000001)", "GPU919"),
        (f"{NVLINK}145, pid=876767, name=ray::WorkerDict, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2)", "GPU919"),
        (f"{NVLINK}149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000)", "GPU913"),
        (f"{SWITCH}24007, Fatal, Link 56 sourcetrack timeout error (First)", "GPU920"),
        (f"{SWITCH}24007, Severity 1 Engine instance 56 Sub-engine instance 00", "GPU920"),
        (f"{SWITCH}20034, Non-fatal, Link 30 LTSSM Fault Up", "GPU921"),
        (f"{SWITCH}20034, Data {{0x10000000, 0x10000000}}", None),
        (f"{SWITCH}15001, Link 28", "GPU920"),  # the driver decides when it happens; then the number counts
    ],
)
def test_the_text_judges_better_than_the_number(text: str, code: str | None) -> None:
    assert [event.code for event in events([text])] == ([code] if code else [])


def test_reused_numbers_have_the_newest_name() -> None:
    """Since R550, 28002 and 28004 report that a module is cool again; before, they were fatal and said so."""
    assert [event.code for event in events([f"{SWITCH}28002, OSFP Thermal Warn Deactivated"])] == ["GPU921"]
    assert [event.code for event in events([f"{SWITCH}28002, Fatal, Link 03 MC TS tag store fatal ECC"])] == ["GPU920"]
    groups = range(10_000, 40_000, 1000)  # the driver's bounds, which it prints never
    assert not [row["id"] for row in NUMBERED if row["number"] in groups]


def test_a_number_that_the_end_of_a_log_or_a_console_cuts_is_no_other_one() -> None:
    text = f"[ 1000.123456] {NVLINK}63, pid=1234, name=python, Row Remapper: New row marked for remapping"
    start = text.index("63,")
    assert not events([text[: start + 1]])
    for width in range(20, 120):
        log = lines("\n".join(text[at : at + width] for at in range(0, len(text), width)))
        assert [(event.code, event.address) for event in events(log)] == [("GPU919", ADDRESS)], width


def test_a_recommended_reset_can_become_unneeded() -> None:
    changed = f"{NVLINK}154, GPU recovery action changed from {{}} to {{}}"
    reset, none = "0x1 (GPU Reset Required)", "0x0 (None)"
    needed, ended = changed.format(none, reset), changed.format(reset, none)
    assert [event.code for event in events([needed])] == ["GPU913"]
    assert not events([needed, ended])
    assert [event.code for event in events([ended, needed])] == ["GPU913"]


NVIDIA_CLI = (
    "error running prestart hook #0: exit status 1, stderr: Auto-detected mode as 'legacy'\\nnvidia-container-cli: "
)


@pytest.mark.parametrize(
    "text",
    [
        NVIDIA_CLI + "initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file",
        NVIDIA_CLI + "initialization error: nvml error: driver not loaded: unknown",
        NVIDIA_CLI + "requirement error: unsatisfied condition: cuda>=12.6, please update your driver",
        NVIDIA_CLI + "device error: 3: unknown device: unknown",
        NVIDIA_CLI + "mount error: failed to add device rules: unable to find any existing device filters",
        NVIDIA_CLI + "container error: cgroup subsystem devices not found: unknown",
        NVIDIA_CLI + "ldcache error: open failed: /sbin/ldconfig.real: no such file or directory: unknown",
        "invoking the NVIDIA Container Runtime Hook directly (e.g. specifying the docker --gpus flag) is",
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        r"returned error: could not select device driver \"nvidia\" with capabilities: [[compute gpu utility]]",
        "docker: Error response from daemon: unknown or invalid runtime name: nvidia",
        "docker: Error response from daemon: Unknown runtime specified nvidia.",
        r"desc = failed to get sandbox runtime: no runtime for \\\"nvidia-cdi\\\" is configured",
        "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all",
        "CDI device injection failed: unresolvable CDI devices management.nvidia.com/gpu=0: unknown",
        "Failed to initialize NVML: Unknown Error",  # in a container, after `systemctl daemon-reload`
    ],
)
def test_containers_that_get_no_gpu(text: str) -> None:
    for program in ("cloud-init", "dockerd", "docker", "podman", "containerd", "kubelet", "k3s"):
        (event,) = events([f"Nov 29 14:20:01 vm {program}[900]: {text}"])
        assert (event.sign, event.code, event.severity) == ("containers-failed", "GPU945", "error")


@pytest.mark.parametrize(
    "text",
    [
        'could not select device driver "" with capabilities: [[tpu]]',
        "unknown or invalid runtime name: kata",
        'no runtime for "kata" is configured',
        "unresolvable CDI devices vendor.com/nic=0",
        "Auto-detected mode as 'nvml'",
    ],
)
def test_failures_of_other_devices_of_containers_are_quiet(text: str) -> None:
    assert not events([f"Nov 29 14:20:01 vm dockerd[900]: {text}"])


@pytest.mark.parametrize("number", ["", "{17}", "{18446744073709551615} "])
@pytest.mark.parametrize(
    "text",
    [
        "uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
        "1 uncorrectable hardware errors detected in umc block",
        "socket: 1, die: 0, 2 new uncorrectable hardware errors detected in gfx block",
    ],
)
def test_memory_errors_of_amd_with_the_number_of_their_event(number: str, text: str) -> None:
    """Since Linux 6.10, amdgpu prints a number before a message of RAS (``amdgpu_ras_event_log_print``)."""
    assert [(event.code, event.address) for event in events([f"{AMD} amdgpu: {number}{text}"])] == [("GPU934", ADDRESS)]


def test_messages_of_the_system_processor_name_their_gpu() -> None:
    text = f"NVRM: Rate limiting GSP RPC error prints for GPU at PCI:{ADDRESS[:-2]} (printing 1 of every 30)."
    assert [event.address for event in events([f"{text}  The GPU likely needs to be reset."])] == [ADDRESS]
    (event,) = events(["NVRM kfspSendBootCommands_GH100: FSP boot cmds failed. RM cannot boot."])  # R535 on an H100
    assert event.code == "GPU860"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("NVRM: Can't find an IRQ for your NVIDIA card!", "GPU860"),
        ("NVRM: request_mem_region failed for 16M @ 0xf6000000. This can", "GPU941"),
    ],
)
def test_resources_that_the_driver_does_not_get(text: str, code: str) -> None:
    assert [(event.code, event.address) for event in events([f"[    4.2] {text}"])] == [(code, None)]


AMD = f"amdgpu {ADDRESS}:"
DRM_ERROR = "[drm:amdgpu_{} [amdgpu]] *ERROR*"
THROTTLED = "GPU thermal throttling temperature reached"
PREEMPTION = "The cp might be in an unrecoverable state due to an unsuccessful queues preemption"


@pytest.mark.parametrize(
    ("text", "code", "severity", "address"),
    [
        (f"{AMD} amdgpu: ERROR: GPU HW Critical Temperature Fault(aka CTF) detected!", "GPU933", "error", ADDRESS),
        (f"{AMD} amdgpu: ERROR: GPU over temperature range(SW CTF) detected!", "GPU933", "error", ADDRESS),
        (f"{AMD} ERROR: System is going to shutdown due to GPU HW CTF!", "GPU933", "error", ADDRESS),
        ("amdgpu: [powerplay] GPU over temperature range detected on PCIe 0:0.0!", "GPU933", "error", None),
        (f"{AMD} WARN: {THROTTLED}, expect performance decrease. X.", "GPU933", "warning", ADDRESS),
        (f"{AMD} {DRM_ERROR.format('ring_test_helper')} ring gfx test failed (-110)", "GPU860", "error", ADDRESS),
        (
            f"{DRM_ERROR.format('device_init')} amdgpu: ring 0 test failed (scratch(0xC040)=0xCA)",
            "GPU860",
            "error",
            None,
        ),
        (f"{AMD} {DRM_ERROR.format('ib_ring_tests')} IB test failed on gfx (-110).", "GPU860", "error", ADDRESS),
        ("kfd kfd: amdgpu: skipped device 1002:731f, PCI rejects atomics 730<0", "GPU942", "error", None),
        ("kfd kfd: skipped device 1002:67df, PCI rejects atomics", "GPU942", "error", None),
        ("kfd kfd: amdgpu: device 1002:74a1 NOT added due to errors", "GPU860", "error", None),
        ("kfd kfd: device 1002:74a1 NOT added due to errors", "GPU860", "error", None),
        (f"{AMD} amdgpu: PCIE atomic ops is not supported", "GPU942", "warning", ADDRESS),
        (f"{DRM_ERROR.format('device_init')} late_init of IP block <gfx_v9_0> failed -110", "GPU860", "error", None),
        (f"{AMD} amdgpu: Failed to setup smc hw!", "GPU935", "error", ADDRESS),
        (f"{AMD} amdgpu: MES failed to respond to msg=REMOVE_QUEUE", "GPU932", "warning", ADDRESS),
        (f"{AMD} amdgpu: {PREEMPTION}", "GPU932", "warning", ADDRESS),
        (f"amdgpu: {PREEMPTION}", "GPU932", "warning", None),
        (f"xe {ADDRESS}: [drm] Tile0: GT0: Engine reset: engine_class=rcs", "GPU932", "warning", ADDRESS),
    ],
)
def test_messages_of_amds_and_intels_drivers(text: str, code: str, severity: str, address: str | None) -> None:
    (event,) = events([f"[   12.345678] {text}"])
    assert (event.code, event.severity, event.address) == (code, severity, address)


@pytest.mark.parametrize(
    ("reason", "code"),
    [("Key was rejected by service", "GPU856"), ("Exec format error", "GPU930"), ("No such device", None)],
)
def test_modules_that_programs_could_not_insert(reason: str, code: str | None) -> None:
    """With ``No such device``, the module fits the kernel, and its driver found no device."""
    systemd = f"systemd-modules-load[312]: Failed to insert module 'nvidia': {reason}"
    worker = systemd.replace("systemd-modules-load", "(udev-worker)")  # of systemd 252 and later
    modprobe = f"modprobe: ERROR: could not insert 'nvidia': {reason}"
    for text in (systemd, modprobe, f"Nov 29 14:20:01 vm {systemd}", f"Nov 29 14:20:01 vm {worker}"):
        assert [event.code for event in events([text])] == ([code] if code else []), text


def test_the_script_that_starts_the_fabric_manager_reports_for_it() -> None:
    text = "fabric manager NVIDIA GPU driver interface version 575.51.03 don't match with driver version 575.57.08."
    assert [event.code for event in events([f"Sep 18 03:19:01 vm nvidia-fabricmanager-start.sh[47]: {text}"])] == [
        "GPU937"
    ]


def test_the_collector_keeps_every_sign() -> None:
    words = _words()
    assert not [row["id"] for row in TROUBLE if _kind(sample(row["pattern"]), words) is None]
    kinds = {_kind(numbered(row), words) for row in NUMBERED}
    assert None not in kinds
    assert len(kinds) == len(NUMBERED)


def test_every_sign_is_explained() -> None:
    known = {code.value for code in definitions()}
    for row in rows():
        assert row.get("code", "GPU912") in known
        assert ("code" in row) != ("reason" in row) or row.get("kind") in ("xid", "sxid"), row["id"]
        assert row["meaning"], row["id"]
        assert row["source"], row["id"]
    by_hand = [row for row in rows() if "hand" in row]
    assert len(by_hand) <= 20
    assert all(row["hand"] for row in by_hand)


def test_a_console_that_cuts_lines_hides_no_sign() -> None:
    for row in TROUBLE:
        text = FORMS["dmesg"](sample(row["pattern"]), 1)
        for width in (40, 80):
            log = lines("\n".join(text[at : at + width] for at in range(0, len(text), width)))
            assert row["code"] in {event.code for event in events([f"[    0.1] {START}", *log])}, (row["id"], log)


def test_a_reset_that_succeeds_later_ends_a_failed_one() -> None:
    other = RESET.replace(ADDRESS, "0000:66:00.0")
    assert [event.address for event in events([RESET, other, READY])] == ["0000:66:00.0"]
    assert [event.count for event in events([READY, RESET, RESET])] == [2]


def test_only_the_last_boot_counts() -> None:
    log = [f"[    1.0] {text}" for text in (START, RESET, START)]
    assert [event.earlier for event in events(log)] == [True]
    assert [event.earlier for event in events([RESET, "-- Boot 0123456789abcdef0123456789abcdef --"])] == [True]


@pytest.mark.parametrize(
    "start",
    [
        "Nov 30 01:00:00 vm ",
        "nov. 30 01:00:00 vm ",
        "févr. 12 01:00:05 vm ",
        "11月 15 14:15:47 vm ",
        "ноя 30 01:00:00.123456 vm ",
        "So 2026-11-29 05:54:02 CET vm ",
    ],
)
def test_the_times_of_journals_in_other_languages(start: str) -> None:
    assert [line.text for line in normalised([f"{start}kernel: text", f"{start}(sd-pam)[7]: text"])] == [
        "text",
        "",
    ]


@pytest.mark.parametrize("time", ["Feb  2 08:03:20", "2026-11-24T05:54:02.123Z"])
def test_a_relay_can_leave_out_the_host_and_a_pod_the_program(time: str) -> None:
    reset = "NVRM: Xid (PCI:0000:65:00): 95, pid=7"
    assert next(line.text for line in normalised([f"{time} kernel: text", f"{time} {reset}"])) == "text"
    assert [event.address for event in events([f"{time} kernel: text", f"{time} {reset}"])] == [ADDRESS]


@pytest.mark.parametrize("stamp", ["[Di Nov 24 05:54:02 2026]", "[二 11月 24 05:54:02 2026]", "[24. 05:54:02]"])
def test_the_times_of_dmesg_in_other_languages(stamp: str) -> None:
    assert [line.own for line in normalised([f"{stamp} text"])] == ["24. " not in stamp]


def test_a_line_without_prefix_does_not_start_a_message() -> None:
    texts = ("login[7]: hello", "text", "[ 1.0] login[7]: hello", "[ 1.0] text")
    assert [line.own for line in normalised(texts)] == [False, False, True, True]


MISMATCH = (
    "NVRM: API mismatch: the client has the version 550.120, but",
    "NVRM: this kernel module has the version 550.90.",
)


@pytest.mark.parametrize(
    "form",
    [
        "[Nov29 17:30] {}",  # dmesg --human
        "[  +0.000003] {}",
        "[   71.100003 <    0.000003>] {}",  # dmesg --show-delta
        "[Sun Nov 29 17:30:04 2026 <    0.000003>] {}",
        "[   71.100003 <    0.000003 >] vm kernel: {}",  # journalctl -o short-delta
        "1723197600.123456 vm kernel: {}",  # -o short-unix
        "<6>Nov 29 17:30:04 vm kernel: {}",
        "Sun 2026-11-29 17:30:04.123456 UTC [s=1;i=1]\n    PRIORITY=3\n    MESSAGE={}\n    _PID=1",  # -o verbose
        '{{\n\t"PRIORITY" : "3",\n\t"MESSAGE" : "{}"\n}}',  # -o json-pretty
        '      {{\n         "pri": 3,\n         "time": 71.1,\n         "msg": "{}"\n      }},',  # dmesg --json
    ],
)
def test_the_parts_of_a_message_are_found_in_each_form_of_a_log(form: str) -> None:
    log = lines("\n".join(form.format(part) for part in MISMATCH))
    assert [event.values["module"] for event in events(log)] == ["550.90"]
    again = "\n".join(form.format(text) for text in (START, "Command line: root=/dev/vda1"))
    assert [event.earlier for event in events([*log, *lines(again)])] == [True]


def test_a_module_that_loads_later_was_not_refused() -> None:
    absent = "systemd-modules-load[180]: Failed to find module 'nvidia'"
    loading = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024"
    assert [event.code for event in events([f"[    1.0] {text}" for text in (absent, loading)])] == []
    assert [event.code for event in events([f"[    1.0] {text}" for text in (loading, absent)])] == ["GPU930"]


def test_cloud_init_reports_for_the_programs_that_it_runs() -> None:
    failed = "Consult /var/lib/dkms/nvidia/550.90.07/build/make.log for more information."
    assert [event.code for event in events([f"[   20.1] cloud-init[900]: {failed}"])] == ["GPU931"]


@pytest.mark.parametrize("program", ["dkms[7]", "dkms.systemd[7]", "akmods[7]", "akmodsbuild[7]", "cloud-init[900]"])
@pytest.mark.parametrize(("module", "found"), [("nvidia-current/550.90", ["GPU931"]), ("zfs/2.2.2", [])])
def test_builds_of_modules_of_gpus_only(program: str, module: str, found: list[str]) -> None:
    for text in (
        f"Consult /var/lib/dkms/{module}/build/make.log for more information.",
        f"Building rpms failed; see /var/cache/akmods/{module}-1-for-6.18.8-200.fc43.x86_64.failed.log for details",
    ):
        assert [event.code for event in events([f"Nov 29 14:20:01 vm {program}: {text}"])] == found


@pytest.mark.parametrize(
    ("where", "address"),
    [
        ("GPU0000:65:00.0", ADDRESS),
        ("GPU 0000:65:00.0", ADDRESS),
        ("GPU3: 0000:65:00.0", ADDRESS),
        ("GPU2", None),
    ],
)
def test_the_gpu_of_which_nvidia_smi_gets_no_handle(where: str, address: str | None) -> None:
    (event,) = events([f"Unable to determine the device handle for {where}: Unknown Error"])
    assert (event.code, event.address) == ("GPU860", address)


def test_thousands_of_failed_starts_are_placed_in_linear_time() -> None:
    reason, failure = "NVRM: Can't find an IRQ for your NVIDIA card!", "nvidia: probe of {} failed with error -1"
    addresses = [f"0000:{n // 256:02x}:{n % 32:02x}.{n // 32 % 8}" for n in range(2000)]
    found = events([text for address in addresses for text in (reason, failure.format(address))])
    assert {event.address for event in found} <= set(addresses)
    assert {event.kind for event in found} == {"init-failed", "probe-failed"}


def test_other_programs_only_quote() -> None:
    assert not events([f"Nov 24 05:54:02 gpu01 sshd[1]: {RESET}", f"[    5.1] myprogram[612]: {RESET}"])
    assert events(["Nov 24 05:54:02 vm nvidia-gridd[612]: Failed to acquire license from license.example (Error: 1)"])


HOSTILE = {
    "a line without end": RESET + "x" * 4_000_000,
    "control characters": "\x00\x1b[2J".join(RESET for _ in range(20_000)),
    "thousands of matches": (RESET + "\n") * 12_000,
    "different addresses": "\n".join(RESET.replace("65:", f"{n % 256:02x}:") for n in range(12_000)),
    "parts without end": "NVRM: The NVIDIA GPU 0000:65:00.0\n" * 12_000,
    "brackets": "[" * 500_000 + "] " * 500_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_logs_are_bounded_and_the_work_is_linear(name: str) -> None:
    text = HOSTILE[name]
    reader = SignTable(rows())
    searches = []
    for share in (4, 2):
        before = reader.searches
        found = reader.events(lines(text[: len(text) // share]))
        searches.append(reader.searches - before)
        assert len(found) <= MOST_EVENTS
        assert all(len(event.message) <= 1024 for event in found)
    assert searches[1] <= 2 * searches[0] + 100


def test_functions_leave_room_for_signs() -> None:
    """A kernel lists thousands of functions (each virtual one, too) before the first sign."""
    functions = [
        f"[    1.0] pci 0000:{bus:02x}:{slot:02x}.{part}: [10de:20b0] type 00 class 0x030200 PCIe Endpoint"
        for bus in range(8)
        for slot in range(32)
        for part in range(8)
    ]
    boot = f"[    0.0] {START}"
    found = SignTable(rows()).events([boot, *functions, boot, *functions, f"[    9.0] {RESET}"])
    assert [event.address for event in found if event.code] == [ADDRESS]
    assert len(found) > 2 * MOST_EVENTS


def test_a_cut_log_never_fails() -> None:
    text = "\n".join(FORMS["dmesg"](sample(row["pattern"]), n) for n, row in enumerate(TROUBLE[:200]))
    for cut in range(0, len(text) - 4000, 3001):
        events(lines(text[cut : cut + 4000]))


def test_the_data_files_are_small() -> None:
    files = [data_dir(name) for name in ("signs.jsonl", "driver_tables.jsonl")]
    assert sum(path.read_text(encoding="utf-8").count("\n") for path in files) <= 1510


def test_codes_of_the_table_exist() -> None:
    assert {Code(code) for code in table().codes} <= set(definitions())


@pytest.mark.parametrize("address", ["0x81:0x00.0", "81:00.0", "0000:81:00.0"])
def test_addresses_of_all_kernels(address: str) -> None:
    text = f"DMAR: [DMA Write NO_PASID] Request device [{address}] fault addr 0xfe000000 [fault reason 0x05] PTE Write"
    assert [event.address for event in events([text])] == ["0000:81:00.0"]


@pytest.mark.parametrize("speaker", ["iommu ivhd0", f"vfio-pci {ADDRESS}"])
def test_an_iommu_of_amd_speaks_for_itself_or_for_a_device(speaker: str) -> None:
    text = f"{speaker}: AMD-Vi: Event logged [IOTLB_INV_TIMEOUT device=65:00.0 address=0x100a0a0a0]"
    assert [(event.code, event.address) for event in events([text])] == [("GPU928", ADDRESS)]


BOOTS = sorted((Path(__file__).parent / "boots").glob("*.log.xz"))


@pytest.mark.parametrize("log", BOOTS, ids=[path.name.removesuffix(".log.xz") for path in BOOTS])
def test_recorded_boots_are_quiet(log: Path) -> None:
    """Serial consoles of Debian's kernels: of the lab's host to its login, and with an IOMMU of either vendor."""
    text = lines(lzma.decompress(log.read_bytes()).decode())
    assert len(text) > 300
    assert not events(text)
    harmless = {messages.BOOT, "command-line", messages.FUNCTION, messages.BRIDGE, messages.INITIALIZED}
    assert {event["kind"] for event in messages.of_signs(table().events(text))} <= harmless
    assert events([*text, f"[  999.000001] {RESET}"])


def test_each_line_is_looked_at_once_for_parts_of_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    joint = SignTable.joint

    def counted(table: SignTable, text: str) -> str | None:
        seen.append(text)
        return joint(table, text)

    monkeypatch.setattr(SignTable, "joint", counted)
    text = "\n".join(f"NVRM: The NVIDIA GPU 0000:65:{n:04x}" for n in range(1_000))
    SignTable(rows()).events(lines(text))
    assert 0 < len(seen) <= 1_000
