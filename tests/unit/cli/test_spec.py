"""``gpustack spec check``, ``init`` and ``schema``, as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpustack.cli.app import main
from gpustack.spec.load import load_spec
from gpustack.spec.schema import schema

CASES = Path(__file__).parents[1] / "spec" / "cases"
K4200 = {
    "version": 1,
    "hostname": "gpu01",
    "pci": [{"address": "0000:88:00.0", "vendor": "10de", "product": "11b4", "class": "030000", "iommu_group": 1}],
}


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    path = tmp_path / "snapshot.json"
    cpu_host = {"version": 1, "hostname": "cpu01", "pci": []}
    path.write_text(json.dumps({"gpustack_snapshot": 1, "hosts": [K4200, cpu_host]}), encoding="utf-8")
    return path


def test_a_valid_spec_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spec", "check", str(CASES / "valid-in-full.yaml")]) == 0
    out, err = capsys.readouterr()
    assert out.endswith("valid-in-full.yaml: valid, 3 models, 3 host patterns\n")
    assert "warning: " in err
    assert "valid-in-full.yaml:10:60 $.models.one.match.addresses[1]: Nova does not support" in err


def test_a_warning_changes_the_exit_code_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spec", "check", str(CASES / "valid-in-full.yaml"), "--exit-code"]) == 3
    assert "Next: gpustack host plan" in capsys.readouterr().err


def test_the_spec_of_the_environment_is_checked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUSTACK_SPEC", str(CASES / "valid-in-full.yaml"))
    assert main(["spec", "check"]) == 0
    assert "valid-in-full.yaml: valid" in capsys.readouterr().out


def test_a_spec_that_is_not_valid_ends_with_10_and_every_problem(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spec", "check", str(CASES / "ambiguous.yaml")]) == 10
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0].endswith("ambiguous.yaml: the spec is not valid, 2 errors")
    assert len(err.splitlines()) == 3


def test_flavors_are_compared_with_hosts(tmp_path: Path, snapshot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "gpustack.yaml"
    spec.write_text(
        'version: 1\nmodels: {k4200: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {gpu01: [k4200]}\n'
        "flavors: {two: {model: k4200, count: 2, vcpus: 1, ram: 1GiB, disk: 1}}\n"
    )
    assert main(["spec", "check", str(spec), "--snapshot", str(snapshot)]) == 0
    assert "GPU410 two: requests 2 of k4200; the host with most, gpu01, has 1" in capsys.readouterr().err
    assert main(["spec", "check", str(spec), "--snapshot", str(snapshot), "-f", "json"]) == 0
    assert [f["code"] for f in json.loads(capsys.readouterr().out)["findings"]] == ["GPU307", "GPU410"]
    assert main(["spec", "check", str(CASES / "ambiguous.yaml"), "--snapshot", str(snapshot)]) == 10


def test_flavors_without_a_common_driver(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "gpustack.yaml"
    spec.write_text(
        'version: 1\nmodels: {k4200: {match: {vendor: "10de", product: "11b4"}, alias: any}, '
        'h100: {match: {vendor: "10de", product: "2331"}, alias: any}}\nhosts: {gpu01: [k4200, h100]}\n'
        "flavors: {one: {model: k4200, vcpus: 1, ram: 1GiB, disk: 1}}\n"
    )
    assert main(["spec", "check", str(spec)]) == 0
    assert "WARNING GPU800 one: " in capsys.readouterr().err
    assert main(["spec", "check", str(spec), "-f", "json"]) == 0
    assert [f["code"] for f in json.loads(capsys.readouterr().out)["findings"]] == ["GPU800"]


def test_problems_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spec", "check", "-f", "json", str(CASES / "another-version.yaml")]) == 10
    report = json.loads(capsys.readouterr().out)
    assert (report["valid"], report["models"], report["hosts"]) == (False, [], [])
    assert report["problems"] == [
        {
            "severity": "error",
            "path": "$.version",
            "line": 1,
            "column": 10,
            "message": "version 2 is not supported; this gpustack reads version 1",
            "suggestion": None,
        }
    ]


def test_a_valid_spec_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spec", "check", "-f", "json", str(CASES / "valid-in-full.yaml")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["valid"] is True
    assert report["models"] == ["k4200", "k4200-hp", "one"]
    assert [problem["severity"] for problem in report["problems"]] == ["warning"]


def test_a_spec_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["spec", "check", str(tmp_path / "none.yaml")]) == 10
    assert "No such file" in capsys.readouterr().err


def test_the_first_spec_goes_to_standard_output(capsys: pytest.CaptureFixture[str], snapshot: Path) -> None:
    assert main(["spec", "init", "--snapshot", str(snapshot)]) == 0
    out, err = capsys.readouterr()
    assert "  gpu01: [k4200]\n" in out
    assert "# No GPU found on cpu01." in out
    assert err == f"Next: gpustack spec init --snapshot {snapshot} --out gpustack.yaml\n"


def test_the_first_spec_is_written_and_never_over_another(
    capsys: pytest.CaptureFixture[str], snapshot: Path, tmp_path: Path
) -> None:
    out = tmp_path / "gpustack.yaml"
    command = ["spec", "init", "--snapshot", str(snapshot), "--out", str(out)]
    assert main(command) == 0
    assert set(load_spec(out).models) == {"k4200"}
    out.write_text("mine", encoding="utf-8")
    assert main(command) == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert out.read_text(encoding="utf-8") == "mine"
    assert main([*command, "--force"]) == 0
    assert set(load_spec(out).models) == {"k4200"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpustack.yaml", "snapshot.json"]


def test_force_replaces_plain_files_only(capsys: pytest.CaptureFixture[str], snapshot: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    for place in (tmp_path, link, Path("/dev/null")):
        assert main(["spec", "init", "--snapshot", str(snapshot), "--out", str(place), "--force"]) == 2
        assert "not a plain file" in capsys.readouterr().err
    assert link.is_symlink()
    assert main(["spec", "init", "--snapshot", str(snapshot), "--force"]) == 2


def test_without_a_gpu_nothing_is_written(capsys: pytest.CaptureFixture[str], snapshot: Path, tmp_path: Path) -> None:
    out = tmp_path / "gpustack.yaml"
    assert main(["spec", "init", "--snapshot", str(snapshot), "cpu01", "--out", str(out)]) == 1
    assert "no GPU found on cpu01" in capsys.readouterr().err
    assert not out.exists()


def test_a_host_that_can_not_be_read_does_not_stop_the_others(
    capsys: pytest.CaptureFixture[str], snapshot: Path
) -> None:
    assert main(["spec", "init", "--snapshot", str(snapshot), "gpu01", "gpu02"]) == 12
    out, err = capsys.readouterr()
    assert "  gpu01: [k4200]\n" in out
    assert "# Not in this spec, because the scan failed: gpu02." in out
    assert "gpu02" in err


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spec", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema()


def test_an_unknown_release_is_a_warning(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The hosts of a newer Nova can be prepared nevertheless."""
    file = tmp_path / "gpustack.yaml"
    spec = 'version: 1\nmodels: {k4200: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {gpu01: [k4200]}\n'
    file.write_text(f'{spec}nova: {{release: "2025.3"}}\n')
    assert main(["spec", "check", str(file)]) == 0
    assert "$.nova.release: '2025.3' is not a release of Nova that gpustack knows" in capsys.readouterr().err
