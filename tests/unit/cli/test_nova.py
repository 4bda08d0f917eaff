"""``gpustack nova render``: what is printed and written, and how it ends."""

import json
import os
from pathlib import Path
from typing import get_args

import pytest
import yaml

from gpustack.spec.deployment import Deployment
from support.nova_command import DROP_IN, SNAPSHOT, SPEC, run


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "gpustack.yaml"
    path.write_text(SPEC)
    return path


def test_rendering_prints_each_file(capsys, spec):
    code, out, err = run(capsys, "render", spec, "--snapshot", SNAPSHOT)
    assert code == 0
    heads = [line for line in out.splitlines() if line.startswith("### ")]
    assert heads == [f"### {target}:/{DROP_IN}" for target in ("control", "compute", "gpu01")]
    assert "GPU317" in err


def test_one_file_is_printed_as_it_is(capsys, spec):
    _, out, _ = run(capsys, "render", spec, "gpu01", "--snapshot", SNAPSHOT, "--service", "compute")
    assert out.startswith("# Written by gpustack for Nova 2025.2")
    _, out, _ = run(capsys, "render", spec, "--snapshot", SNAPSHOT, "--all-in-one", "--release", "yoga")
    assert "passthrough_whitelist = " in out
    assert "enabled_filters = " in out


def test_writing_twice_changes_nothing_the_second_time(capsys, spec, tmp_path):
    out = tmp_path / "out"
    before = os.umask(0o077)  # of administrators; Nova's user must read the files
    try:
        assert "3 files written below" in run(capsys, "render", spec, "--snapshot", SNAPSHOT, "--out", out)[2]
    finally:
        os.umask(before)
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*.conf")}
    assert len(times) == 3
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in times)
    assert {path.stat().st_mode & 0o777 for path in (out, *out.rglob("*")) if path.is_dir()} == {0o755}
    assert "0 files written below" in run(capsys, "render", spec, "--snapshot", SNAPSHOT, "--out", out)[2]
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.conf")} == times


@pytest.mark.parametrize("tool", get_args(Deployment))
def test_the_next_command_after_writing_works_for_each_tool(capsys, spec, tmp_path, tool):
    """Lint can't judge overrides and variables that the tool completes on the hosts."""
    printed = run(capsys, "render", spec, "--snapshot", SNAPSHOT, "--deployment", tool, "--out", tmp_path / "out")[2]
    (following,) = [line for line in printed.splitlines() if line.startswith("Next: ")]
    assert following.startswith("Next: gpustack nova lint" if tool == "drop-in" else "Next: gpustack flavor plan")
    if tool == "drop-in":
        assert run(capsys, "lint", tmp_path / "out", "--spec", spec)[0] == 0


@pytest.mark.parametrize("path", ["/etc/kolla/config/nova", "../kolla/nova"])
def test_a_file_of_all_hosts_is_none_of_a_host(capsys, spec, path):
    """Equal files of two services were two hosts, and a relative path had no name before its first dot."""
    arguments = ("render", spec, "--snapshot", SNAPSHOT, "--deployment", "kolla", "--path", path)
    out = run(capsys, *arguments)[1]
    heads = [line for line in out.splitlines() if line.startswith("### ")]
    names = ("nova-api.conf", "nova-compute.conf", "nova-scheduler.conf", "gpu01/nova.conf")
    assert sorted(heads) == sorted(f"### {path}/{name}" for name in names)
    files = json.loads(run(capsys, *arguments, "-f", "json")[1])["files"]
    assert {file["path"]: file["group"] for file in files}[f"{path}/nova-api.conf"] == f"{path}/nova-api.conf"


def test_the_next_command_renders_for_the_same_hosts(capsys, spec):
    printed = run(capsys, "render", spec, "gpu01", "--snapshot", SNAPSHOT, "--service", "compute")[2]
    (following,) = [line for line in printed.splitlines() if line.startswith("Next: ")]
    assert following.startswith(f"Next: gpustack nova render {spec} gpu01 --snapshot")


def test_a_difference_is_shown_and_not_written(capsys, spec, tmp_path):
    out = tmp_path / "out"
    run(capsys, "render", spec, "--snapshot", SNAPSHOT, "--out", out)
    earlier = "# Written by gpustack for Nova 2025.1\n[pci]\n"
    (out / "gpu01" / DROP_IN).write_text(earlier)
    _, output, _ = run(capsys, "render", spec, "--snapshot", SNAPSHOT, "--out", out, "--diff")
    assert f"--- {out}/gpu01/{DROP_IN}" in output
    assert '+device_spec = {"vendor_id": "10de", "product_id": "11b4"}' in output
    assert "control" not in output
    assert (out / "gpu01" / DROP_IN).read_text() == earlier


def test_what_an_earlier_rendering_left_goes_after_it_is_shown(capsys, spec, tmp_path):
    out = tmp_path / "out"
    run(capsys, "render", spec, "--snapshot", SNAPSHOT, "--out", out)
    old, foreign = out / "gone01" / DROP_IN, out / "other01" / DROP_IN
    for path, text in ((old, (out / "gpu01" / DROP_IN).read_text()), (foreign, "[pci]\n")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    assert f"--- {old}" in run(capsys, "render", spec, "--snapshot", SNAPSHOT, "--out", out, "--diff")[1]
    run(capsys, "render", spec, "gpu01", "--snapshot", SNAPSHOT, "--out", out)
    run(capsys, "render", spec, "--snapshot", SNAPSHOT, "--service", "api", "--out", out)
    assert old.exists()
    output = run(capsys, "render", spec, "--snapshot", SNAPSHOT, "--out", out)[2]
    assert f"{old}: removing it" in output
    assert not old.exists()
    assert foreign.read_text() == "[pci]\n"


@pytest.mark.parametrize(
    ("hosts", "reported"),
    [
        ("gpu01: [k4200], gpu02: [k4200]", "GPU308"),
        ("'gpu[01:02]': [k4200]", "no facts of gpu02"),
        ("'gpu*': [k4200]", "gpustack.conf: kept, because a pattern of the spec matches its host"),
    ],
)
def test_a_host_without_facts_keeps_its_files(capsys, spec, tmp_path, hosts, reported):
    """A partial snapshot does not show which hosts are gone."""
    out, snapshot = tmp_path / "tree", tmp_path / "both.json"
    document = json.loads(SNAPSHOT.read_text(encoding="utf-8"))
    document["hosts"].append({**document["hosts"][0], "hostname": "gpu02"})
    snapshot.write_text(json.dumps(document), encoding="utf-8")
    spec.write_text(SPEC.replace("gpu01: [k4200]", hosts))
    run(capsys, "render", spec, "--snapshot", snapshot, "--out", out)
    before = {path for path in out.rglob("*") if path.is_file()}
    assert any("gpu02" in str(path) for path in before)
    assert reported in "".join(run(capsys, "render", spec, "--snapshot", SNAPSHOT, "--out", out)[1:])
    assert {path for path in out.rglob("*") if path.is_file()} == before


SHARED_FILES = {"rhoso": "rhoso/dataplane.yaml", "openstack-helm": "openstack-helm/gpustack-nova.yaml"}


@pytest.mark.parametrize("tool", SHARED_FILES)
@pytest.mark.parametrize(
    ("hosts", "chosen", "reported", "stays"),
    [
        ("'gpu*': [k4200]", [], "gpu02: the part of an earlier rendering is kept", True),
        ("gpu01: [k4200], gpu02: [k4200]", [], "no facts of gpu02", True),
        ("'gpu*': [k4200]", ["gpu01"], "", True),
        ("gpu01: [k4200]", [], "gpu02: taking the part of an earlier rendering out", False),
    ],
)
def test_a_file_of_all_hosts_keeps_those_without_facts(capsys, spec, tmp_path, tool, hosts, chosen, reported, stays):
    file, snapshot = tmp_path / "out" / SHARED_FILES[tool], tmp_path / "both.json"
    document = json.loads(SNAPSHOT.read_text(encoding="utf-8"))
    document["hosts"].append({**document["hosts"][0], "hostname": "gpu02"})
    snapshot.write_text(json.dumps(document), encoding="utf-8")
    arguments = ("render", spec, "--deployment", tool, "--out", tmp_path / "out")
    spec.write_text(SPEC.replace("gpu01: [k4200]", "'gpu*': [k4200]"))
    run(capsys, *arguments, "--snapshot", snapshot)
    before = file.read_text()
    spec.write_text(SPEC.replace("gpu01: [k4200]", hosts))
    assert reported in run(capsys, *arguments, *chosen, "--snapshot", SNAPSHOT)[2]
    assert (file.read_text() == before) is stays
    assert ("gpu02" in file.read_text()) is stays


def test_a_host_without_facts_keeps_the_name_and_the_text_of_its_service(capsys, spec, tmp_path):
    """Node sets refer to services by name; a service whose settings changed is another one."""
    out = tmp_path / "out"
    document = json.loads(SNAPSHOT.read_text(encoding="utf-8"))
    snapshots = {name: tmp_path / f"{name}.json" for name in ("gpu01", "gpu02")}
    for name, snapshot in snapshots.items():
        snapshot.write_text(json.dumps({**document, "hosts": [{**document["hosts"][0], "hostname": name}]}))
    arguments = ("render", spec, "--deployment", "rhoso", "--out", out)
    spec.write_text(SPEC.replace("gpu01: [k4200]", "'gpu*': [k4200]"))
    run(capsys, *arguments, "--snapshot", snapshots["gpu02"])
    run(capsys, *arguments, "--snapshot", snapshots["gpu01"], "--release", "2025.1")
    drop_ins = {d["metadata"]["name"]: d["data"] for d in resources(out) if d["kind"] == "ConfigMap"}
    assert drop_ins["nova-gpu-10de-11b4"]["35-gpustack-nova.conf"].startswith("# gpu01, gpu02\n")
    renamed = spec.read_text().replace("k4200", "quadro")
    for text, names in ((renamed, []), (renamed.replace("nova: {", "nova: {placement: report, "), ["nova-gpu-gpu02"])):
        spec.write_text(text)
        run(capsys, *arguments, "--snapshot", snapshots["gpu01"])
        drop_ins = {d["metadata"]["name"]: d["data"]["35-gpustack-nova.conf"] for d in resources(out) if "data" in d}
        assert list(drop_ins) == ["nova-gpu-none", "nova-gpu-10de-11b4", *names]
        assert not any("k4200" in drop_in for drop_in in drop_ins.values())
    assert "report_in_placement" not in drop_ins["nova-gpu-gpu02"]


def resources(out: Path) -> list[dict]:
    return list(yaml.safe_load_all((out / SHARED_FILES["rhoso"]).read_text()))


@pytest.mark.parametrize("tool", ["rhoso", "openstack-helm", "openstack-ansible"])
@pytest.mark.parametrize("service", ["api", "scheduler", "conductor", "compute", "placement"])
def test_a_rendering_for_one_service_loses_nothing_of_the_others(capsys, spec, tmp_path, tool, service):
    """They share files, which Helm, oc and Ansible take as they are."""
    out = tmp_path / "out"
    spec.write_text(SPEC.replace("nova: {", "nova: {placement: schedule, "))
    arguments = ("render", spec, "--snapshot", SNAPSHOT, "--deployment", tool, "--out", out)
    run(capsys, *arguments)
    before = {path: path.read_text() for path in out.rglob("*") if path.is_file()}
    assert "0 files written" in run(capsys, *arguments, "--service", service)[2]
    assert {path: path.read_text() for path in out.rglob("*") if path.is_file()} == before


def test_what_others_wrote_beside_a_stale_block_stays(capsys, spec, tmp_path):
    arguments = ("render", spec, "--snapshot", SNAPSHOT, "--deployment", "kolla", "--out", tmp_path)
    run(capsys, *arguments)
    directory = tmp_path / "etc/kolla/config/nova"
    shared, alone = directory / "gone01" / "nova.conf", directory / "gone02" / "nova.conf"
    block = (directory / "gpu01" / "nova.conf").read_text()
    for path, text in ((shared, f"[libvirt]\ncpu_mode = host-model\n\n{block}"), (alone, block)):
        path.parent.mkdir()
        path.write_text(text)
    output = run(capsys, *arguments)[2]
    assert f"{shared}: taking the part" in output
    assert shared.read_text() == "[libvirt]\ncpu_mode = host-model\n"
    assert not alone.exists()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"# BEGIN gpustack: change the spec and render again\n[pci]\n", "one of the two lines is missing"),
        ("# größe\n[DEFAULT]\n".encode("latin-1"), "convert the file to UTF-8"),
    ],
)
def test_a_file_that_can_not_be_changed_keeps_the_others_unwritten(capsys, spec, tmp_path, text, error):
    out = tmp_path / "out"
    damaged = out / "etc/kolla/config/nova/gpu01/nova.conf"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(text)
    arguments = ("render", spec, "--snapshot", SNAPSHOT, "--deployment", "kolla", "--out", out)
    code, _, err = run(capsys, *arguments)
    assert code != 0
    assert f"{damaged}: " in err
    assert error in err
    assert [path for path in out.rglob("*.conf") if path != damaged] == []


def test_a_damaged_block_of_an_earlier_rendering_keeps_all_files_unwritten(capsys, spec, tmp_path):
    damaged = tmp_path / "etc/kolla/config/nova/gone01/nova.conf"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("# BEGIN gpustack: change the spec and render again\n[pci]\n")
    code, _, err = run(capsys, "render", spec, "--snapshot", SNAPSHOT, "--deployment", "kolla", "--out", tmp_path)
    assert code == 20
    assert f"{damaged}: one of the two lines is missing" in err
    assert [path for path in tmp_path.rglob("*.conf") if path != damaged] == []


def test_an_error_leaves_nothing_written(capsys, spec, tmp_path):
    existing = tmp_path / "nova.conf"
    existing.write_text('[pci]\nalias = {"name": "k4200", "vendor_id": "10de", "product_id": "ffff"}\n')
    out = tmp_path / "out"
    code, _, err = run(capsys, "render", spec, "--snapshot", SNAPSHOT, "--out", out, "--from", existing)
    assert code == 20
    assert f"GPU313 {existing}:2" in err
    assert not out.exists()


def test_a_spec_without_nova_says_what_to_add(capsys, spec):
    spec.write_text(SPEC.replace('nova: {release: "2025.2"}\n', ""))
    code, _, err = run(capsys, "render", spec, "--snapshot", SNAPSHOT)
    assert code == 20
    assert "no section `nova`" in err


def test_rendering_as_data(capsys, spec):
    _, out, _ = run(capsys, "render", spec, "--snapshot", SNAPSHOT, "-f", "json")
    data = json.loads(out)
    assert [file["target"] for file in data["files"]] == ["control", "compute", "gpu01"]
    assert {finding["code"] for finding in data["findings"]} == {"GPU317"}
