"""``gpustack nova lint`` and ``nova options``: what is printed, and how they end."""

import json
from pathlib import Path

import pytest

from gpustack.cli.app import main
from gpustack.configure.installed import verdicts
from gpustack.configure.installed.verdicts import Verdicts
from support.network_cards import network_card
from support.nova_command import DROP_IN, SNAPSHOT, SPEC, run


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "gpustack.yaml"
    path.write_text(SPEC)
    return path


@pytest.mark.parametrize(
    ("text", "result", "codes"),
    [
        ("[DEFAULT]\n", "Success", (0, 0)),
        ('[pci]\ndevice_spec = {"vendor_id": "10de"}\n', "Warning", (0, 3)),
        ("[pci]\ndevice_spec = 5\n", "Failure", (20, 20)),
    ],
)
def test_lint_exit_code_reports_warnings(capsys, tmp_path, text, result, codes):
    file = tmp_path / "nova-compute.conf"
    file.write_text(text)
    for options, code in zip(((), ("--exit-code",)), codes, strict=True):
        ended, out, _ = run(capsys, "lint", file, "--release", "2025.2", *options)
        assert ended == code
        assert result in out


def test_lint_without_a_configuration_to_check(capsys, tmp_path):
    assert run(capsys, "lint", tmp_path, "--release", "nothing")[0] == 2
    assert run(capsys, "lint", "cinder=nova.conf")[0] == 2


def test_lint_reads_the_tree_of_render(capsys, spec, tmp_path):
    tree = tmp_path / "rendered"
    assert run(capsys, "render", spec, "--snapshot", SNAPSHOT, "--out", tree)[0] == 0
    options = ("--spec", spec, "--snapshot", SNAPSHOT, "--exit-code")
    code, out, err = run(capsys, "lint", tree, *options)
    assert (code, "Warning" in out, "Failure" in out) == (0, False, False), err
    (tree / "control" / DROP_IN).write_text("[DEFAULT]\n")
    code, _, err = run(capsys, "lint", tree, *options)
    assert code == 20
    assert "GPU355" in err
    assert f"GPU630 {tree}/control" in err


def test_lint_expects_the_aliases_of_the_spec(capsys, spec, tmp_path):
    spec.write_text(
        SPEC.replace("models: {", 'models: {t4: {match: {vendor: "10de", product: "1eb8"}}, ').replace(
            "[k4200]", "[k4200, t4]"
        )
    )
    file = tmp_path / "nova-api.conf"
    file.write_text('[pci]\nalias = {"name": "k4200", "vendor_id": "10de", "product_id": "11b4"}\n')
    _, _, err = run(capsys, "lint", file, "--spec", spec)
    assert "GPU630" in err
    assert "alias t4 of the spec" in err
    assert "alias k4200 of the spec" not in err


def test_lint_as_data(capsys, tmp_path):
    file = tmp_path / "nova.conf"
    file.write_text("[pci]\nalias = {'name': 'gpu'}\n")
    _, out, _ = run(capsys, "lint", file, "-f", "json", "--service", "api")
    checks = {row["Check"]: row for row in json.loads(out)}
    (finding,) = checks["Aliases"]["Details"]
    assert (finding["code"], finding["place"]) == ("GPU331", f"{file}:2")
    assert checks["Aliases"]["Result"] == "Failure"


def test_markers_of_quotas_are_compared_with_the_gpus(capsys, spec, tmp_path):
    spec.write_text(f"{SPEC}quotas: {{default: {{k4200: 1}}}}\n")
    out = tmp_path / "out"
    assert run(capsys, "render", spec, "--snapshot", SNAPSHOT, "--out", out)[0] == 0
    lint = ("lint", out, "--spec", spec, "--snapshot", SNAPSHOT)
    assert "GPU746" not in run(capsys, *lint)[2]
    file = out / "gpu01/etc/nova/provider_config/gpustack.yaml"
    file.write_text(file.read_text().replace("total: ", "total: 9"))
    assert "GPU746 gpu01: has 9" in run(capsys, *lint)[2]


def test_entries_are_compared_with_the_networks_of_the_spec(capsys, spec, tmp_path):
    document = json.loads(SNAPSHOT.read_text())
    document["hosts"][0]["pci"] += network_card(0x1A, 2, "ens1")
    snapshot = tmp_path / "hosts.json"
    snapshot.write_text(json.dumps(document))
    spec.write_text(f"{SPEC}networks: {{rdma: {{match: {{interfaces: [ens1]}}, physical_network: fabric}}}}\n")
    out = tmp_path / "out"
    assert run(capsys, "render", spec, "--snapshot", snapshot, "--out", out)[0] == 0
    lint = ("lint", out, "--spec", spec, "--snapshot", snapshot)
    assert "GPU89" not in run(capsys, *lint)[2]
    (file,) = (path for path in out.rglob("*.conf") if "fabric" in path.read_text())
    file.write_text(file.read_text().replace("fabric", "storage"))
    assert "GPU894" in run(capsys, *lint)[2]
    spec.write_text(SPEC)
    assert "GPU89" not in run(capsys, *lint)[2]


def test_options_are_listed_with_limits_and_source(capsys):
    assert main(["nova", "options", "mdev_class", "--release", "2025.2", "-f", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["Option"], row["Source"]) == ("[mdev_*] mdev_class", "nova/conf/devices.py")
    assert "CUSTOM_" in row["Limits"]


@pytest.mark.parametrize("name", ["passthrough_whitelist", "[default] pci_passthrough"])
def test_an_option_is_found_by_a_deprecated_name(capsys, name):
    assert main(["nova", "options", name, "--release", "2025.2", "-f", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["Option"], row["Default"]) == ("[pci] device_spec", "")


@pytest.mark.parametrize("name", ["pci.device_spec", "pci/device_spec", "[pci]device_spec", "[pci]/device_spec"])
def test_an_option_is_found_in_each_notation_and_by_its_later_name(capsys, name):
    assert main(["nova", "options", name, "--release", "yoga", "-f", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["Option"] == "[pci] passthrough_whitelist"


def test_an_option_that_no_release_has_is_refused(capsys):
    assert main(["nova", "options", "no_such_option"]) == 2
    assert "has no such option" in capsys.readouterr().err


def by_option(out: str) -> dict[str, dict[str, object]]:
    return {str(row["Option"]): row for row in json.loads(out)}


def test_options_are_shown_by_service(capsys, tmp_path):
    """The conductor above the cells has a configuration of its own, as in kolla-ansible."""
    switch = "[filter_scheduler]\npci_in_placement = {}\n"
    alias = '{"name": "a", "vendor_id": "10de", "product_id": "11b4"}'
    texts = {
        "nova-api.conf": f"[pci]\nalias = {alias}\n",
        "nova-compute.conf": switch.format("true") + "[compute]\ncpu_shared_set = 0-3\n",
        "nova-conductor.conf": switch.format("false"),
        "nova-super-conductor.conf": switch.format("true"),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    code, out, err = run(capsys, "lint", tmp_path, "--services", "--release", "2025.2", "-f", "json")
    rows = by_option(out)
    switches = rows["[filter_scheduler] pci_in_placement"]
    assert [switches[of] for of in ("api", "compute", "scheduler", "conductor", "super-conductor", "placement")] == [
        "missing",
        "not read",
        None,
        "differs",
        "differs",
        None,
    ]
    assert (rows["[pci] alias"]["api"], rows["[pci] alias"]["compute"]) == ("set", "missing")
    assert rows["[pci] alias"]["Settings"] == [
        {"service": "api", "place": f"{tmp_path}/nova-api.conf:2", "value": alias}
    ]
    assert rows["[compute] cpu_shared_set"]["compute"] == "set"
    assert rows["[quota] driver"]["super-conductor"] == "default"
    assert (code, "GPU3" in err) == (20, True)  # the findings are printed, too


def test_a_super_conductor_can_be_named(capsys, tmp_path):
    file = tmp_path / "nova.conf"
    file.write_text("[filter_scheduler]\npci_in_placement = true\n")
    _, out, _ = run(capsys, "lint", f"super-conductor={file}", "--services", "--release", "2025.2", "-f", "json")
    row = by_option(out)["[filter_scheduler] pci_in_placement"]
    assert (row["super-conductor"], row["conductor"], row["api"]) == ("set", None, None)


def test_another_release_than_that_of_nova_is_refused(capsys, tmp_path, monkeypatch):
    """Nova answers while gpustack checks, so its version is known last."""
    file = tmp_path / "nova.conf"
    file.write_text("[DEFAULT]\n")
    answer = Verdicts(version="32.2.1", by_source=[()])
    monkeypatch.setattr(verdicts, "local", lambda *_: answer)
    assert run(capsys, "lint", file, "--with-nova", "nova", "--release", "2025.1")[0] == 2
    code, _, err = run(capsys, "lint", file, "--with-nova", "nova")
    assert (code, err) == (0, "checked for Nova 2025.2\n")


def test_a_nova_that_does_not_run_is_reported(capsys, tmp_path):
    file = tmp_path / "nova.conf"
    file.write_text("[DEFAULT]\n")
    code, _, err = run(capsys, "lint", file, "--with-nova", tmp_path / "nothing")
    assert (code, "there is no such program" in err) == (20, True)
