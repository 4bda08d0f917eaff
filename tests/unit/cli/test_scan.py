"""``gpustack scan``: golden listings, columns, snapshots, exit codes."""

from __future__ import annotations

import json
import shlex
import stat

import pytest

from gpustack.hosts.facts.store import load_snapshot, save_snapshot
from support import server_fleets

NAMES = ("k4200", "k4200-prepared", "nvswitch", "shared-nic", "mi300x", "laptop")


@pytest.mark.parametrize("name", NAMES)
def test_golden_table(name, gpustack, golden, snapshots):
    ran = gpustack("scan", "--snapshot", path := snapshots / f"{name}.json")
    golden(f"scan-{name}.txt", str(ran).replace(shlex.quote(str(path)), path.name))


@pytest.mark.parametrize("name", NAMES)
def test_golden_json(name, gpustack, golden, snapshots):
    ran = gpustack("-q", "scan", "--snapshot", snapshots / f"{name}.json", "-f", "json")
    assert ran.code == 0
    golden(f"scan-{name}.json", ran.out)


def test_json_has_the_promised_keys(gpustack, snapshots):
    ran = gpustack("scan", "--snapshot", snapshots / "laptop.json", "-f", "json")
    promised = (
        "host address vendor_id product_id name class driver iommu_group numa_node dev_type companions ready reasons"
    )
    for gpu in json.loads(ran.out):
        assert list(gpu)[:13] == promised.split()


@pytest.mark.parametrize("chosen", [("Card", "Host"), ("name", "host"), ("CARD", "host")])
def test_columns_go_by_title_or_key(chosen, gpustack, snapshots):
    options = [argument for name in chosen for argument in ("-c", name)]
    ran = gpustack("scan", "--snapshot", snapshots / "k4200.json", "-f", "csv", *options)
    assert ran.out == '"Host","Card"\n' + '"gpu01","NVIDIA Quadro K4200"\n' * 2
    ran = gpustack("scan", "--snapshot", snapshots / "k4200.json", "-f", "json", *options)
    assert json.loads(ran.out) == [{"host": "gpu01", "name": "NVIDIA Quadro K4200"}] * 2


def test_fields_beyond_the_table_can_be_chosen(gpustack, snapshots):
    ran = gpustack(
        *("scan", "--snapshot", snapshots / "laptop.json", "-f", "value"),
        *("-c", "companions", "-c", "vendor_id", "-c", "bars", "-c", "boot_vga", "-c", "memory", "-c", "link"),
    )
    assert ran.out.splitlines() == [
        "8086 - - yes - 0: 16 MiB, 2: 256 MiB, 4: 64 B",
        "10de 0000:01:00.1, 0000:01:00.2, 0000:01:00.3 - no - 0: 16 MiB, 1: 256 MiB, 3: 32 MiB",
    ]


def test_a_column_that_is_not_there(gpustack, snapshots):
    ran = gpustack("scan", "--snapshot", snapshots / "k4200.json", "-c", "colour")
    assert ran.code == 2
    assert ran.out == ""
    assert "there is no column 'colour'" in ran.err


def test_sorting_is_by_value(gpustack, snapshots):
    def groups(*options):
        ran = gpustack(
            "scan",
            "--snapshot",
            snapshots / "nvswitch.json",
            "-f",
            "value",
            "-c",
            "numa_node",
            "-c",
            "address",
            *options,
        )
        return [line.split() for line in ran.out.splitlines()]

    assert groups("--sort-column", "NUMA", "--sort-column", "address") == sorted(
        groups(), key=lambda row: (int(row[1]), row[0])
    )


def test_save_and_read_again(gpustack, snapshots, tmp_path):
    saved = tmp_path / "saved.json"
    first = gpustack("scan", "--snapshot", snapshots / "k4200.json", "--save", saved, "-f", "json")
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    assert gpustack("scan", "--snapshot", saved, "-f", "json") == first


def test_no_gpu_is_no_error(gpustack, tmp_path):
    path = tmp_path / "plain.json"
    path.write_text(
        json.dumps({"version": 1, "hostname": "plain", "iommu": {"group_count": 1, "acpi_tables": ["DMAR"]}, "pci": []})
    )
    ran = gpustack("scan", "--snapshot", path, "-f", "json")
    assert (ran.code, json.loads(ran.out)) == (0, [])
    assert ran.err == "plain: no GPU among its 0 PCI functions\n"
    assert gpustack("scan", "--snapshot", path, "-c", "vendor_id").code == 0
    ran = gpustack("health", "--snapshot", path)
    assert (ran.code, ran.err) == (0, "plain: no GPU among its 0 PCI functions\n")


def test_hosts_without_gpus_are_named_in_one_line(gpustack, tmp_path):
    path = tmp_path / "plain.json"
    hosts = [{"version": 1, "hostname": f"cpu{number:02}", "pci": []} for number in range(1, 41)]
    path.write_text(json.dumps({"gpustack_snapshot": 1, "hosts": hosts}))
    for command in ("scan", "health"):
        assert "cpu[01:40]: no GPU among their 0 PCI functions\n" in gpustack(command, "--snapshot", path).err


def test_hosts_of_a_snapshot_and_one_that_is_not_there(gpustack, snapshots):
    ran = gpustack("scan", "--snapshot", snapshots / "k4200.json", "gpu[01:02]", "-f", "value", "-c", "host")
    assert ran.code == 12
    assert ran.out == "gpu01\ngpu01\n"
    assert f"gpu02: not in the snapshot {snapshots / 'k4200.json'}\n" in ran.err
    assert "→ `gpustack scan HOST… --save FILE` writes" in ran.err
    assert ran.err.endswith("1 of 2 hosts could not be read\n  → the reasons are above; the others were read\n")


def test_hosts_may_stand_around_options(gpustack, snapshots):
    ran = gpustack("scan", "gpu01", "--snapshot", snapshots / "k4200.json", "gpu02", "-f", "value", "gpu03")
    assert f"gpu[02:03] (2 hosts): not in the snapshot {snapshots / 'k4200.json'}\n" in ran.err
    assert ran.err.endswith("2 of 3 hosts could not be read\n  → the reasons are above; the others were read\n")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--root", "/", "gpu01"), 2, "--root and HOST exclude each other"),
        (("--sudo", "--root", "/"), 2, "--sudo applies only to hosts and this machine"),
        (("gpu[4:1]",), 2, "names no hosts"),
        (("gpu-*",), 2, "names no hosts"),
        (("a;reboot",), 2, "names no hosts"),
        (("--snapshot", "/nonexistent"), 11, "can't read the snapshot"),
        (("--root", "/nonexistent"), 12, "can't be read"),
        (("--port", "70000", "gpu01"), 2, "70000 is no port"),
        (("--jobs", "0", "gpu01"), 2, "must be 1 or more"),
        (("--timeout", "nan", "gpu01"), 2, "must be more than 0 seconds"),
        (("--root", "/", "--snapshot", "x"), 2, "not allowed with argument"),
    ],
)
def test_bad_command_lines(options, code, message, gpustack):
    ran = gpustack("scan", *options)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err


def test_nothing_is_written_from_a_bad_snapshot(gpustack, tmp_path):
    bad, saved = tmp_path / "bad.json", tmp_path / "saved.json"
    bad.write_text('{"gpustack_snapshot": 1, "hosts": [{"version": 1, "hostname": "x\\ny", "pci": []}]}')
    ran = gpustack("scan", "--snapshot", bad, "--save", saved)
    assert ran.code == 11
    assert not saved.exists()


def test_nothing_of_a_snapshot_moves_the_terminal(gpustack, snapshots, tmp_path):
    document = json.loads((snapshots / "shared-nic.json").read_text())
    for function in document["hosts"][0]["pci"]:
        for interface in function["uses"].get("net", ()):
            interface["name"] = "evil\u009b2J\u202e"
        function["slot"] = "\u2028slot"
    path = tmp_path / "evil.json"
    path.write_text(json.dumps(document))
    ran = gpustack("scan", "--snapshot", path, "-c", "slot", "-c", "host")
    assert "interface evil\\u009b2J\\u202e" in ran.err
    assert "\\u2028slot" in ran.out
    assert not set(ran.out + ran.err) & set("\u009b\u202e\u2028")


def test_quiet_prints_data_and_errors_only(gpustack, snapshots):
    ran = gpustack("-q", "scan", "--snapshot", snapshots / "laptop.json")
    assert (ran.err, "NVIDIA" in ran.out) == ("", True)
    assert "WARNING GPU006" in gpustack("scan", "--snapshot", snapshots / "laptop.json").err
    ran = gpustack("-q", "scan", "--snapshot", snapshots / "shared-nic.json")
    assert ran.err.startswith("ERROR GPU")
    assert "WARNING" not in ran.err


def test_verbose_adds_the_notes_of_the_catalogue(gpustack, snapshots):
    usual = gpustack("scan", "--snapshot", snapshots / "k4200.json")
    ran = gpustack("-v", "scan", "--snapshot", snapshots / "k4200.json")
    assert "GPU022" not in usual.err
    assert "INFO GPU022 gpu01 0000:84:00.0, 0000:88:00.0: The last guest driver branch is R470" in ran.err


def test_many_rows_of_json_are_the_same_data(gpustack, tmp_path, monkeypatch):
    path = tmp_path / "fleet.json"
    save_snapshot(path, server_fleets.fleet(12))
    lines = gpustack("-q", "scan", "--snapshot", path, "-f", "json")
    monkeypatch.setattr("gpustack.cli.common._INDENTED", 5)
    few = gpustack("-q", "scan", "--snapshot", path, "-f", "json")
    assert json.loads(few.out) == json.loads(lines.out)
    assert len(few.out.splitlines()) == 2 + len(json.loads(few.out))


def test_saving_a_snapshot_again_makes_lines_of_it(gpustack, snapshots, tmp_path):
    copy = tmp_path / "copy.json"
    gpustack("scan", "--snapshot", snapshots / "k4200.json", "--save", copy)
    assert len(copy.read_text().splitlines()) == 3
    assert load_snapshot(copy) == load_snapshot(snapshots / "k4200.json")
