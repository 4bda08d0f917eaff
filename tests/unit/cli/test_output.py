"""One output for all lists: every column, by key or title, sorted by any, in every format."""

import json
from pathlib import Path

import pytest

from gpustack.cli.app import main
from support.host_samples import SNAPSHOTS, snapshot

HOST = str(SNAPSHOTS / "mi300x.json")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", ["scan", "health"])
@pytest.mark.parametrize("form", ["json", "yaml", "csv", "value", "table"])
def test_each_column_is_available_in_every_format(command: str, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    keys = list(json.loads(printed(capsys, command, "--snapshot", HOST, "-f", "json"))[0])
    for key in (keys[0].upper(), keys[-1], keys[len(keys) // 2]):
        assert printed(capsys, command, "--snapshot", HOST, "-f", form, "-c", key)
    many = [argument for key in keys[:20] for argument in ("-c", key)]
    assert printed(capsys, command, "--snapshot", HOST, "-f", form, *many)


def test_a_list_is_sorted_by_a_column_that_it_does_not_show(capsys: pytest.CaptureFixture[str]) -> None:
    for direction, first in (("--sort-ascending", "0000:05:00.0"), ("--sort-descending", "0000:85:00.0")):
        command = ("scan", "--snapshot", HOST, "-f", "value", "-c", "ADDRESS", "--sort-column", "NUMA", direction)
        assert printed(capsys, *command).splitlines()[0] == first


@pytest.mark.parametrize("option", ["-c", "--sort-column"])
def test_unknown_columns_are_errors(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", "--snapshot", HOST, option, "colour"]) == 2
    assert "there is no column 'colour'" in capsys.readouterr().err


SPEC = """\
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {"gpu[01:40]": [k4200]}
nova: {release: "2025.2", deployment: drop-in}
"""
READING = [
    ("scan",),
    ("host", "plan", "SPEC"),
    ("nova", "render", "SPEC"),
    ("health",),
    ("topology",),
]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The files of a spec and of a snapshot with 40 hosts that differ in their names and identifiers."""
    place = tmp_path_factory.mktemp("fleet")
    text = json.dumps(snapshot("k4200"))
    assert "-9b6d-" in text  # of the UUID of its file system
    of_host = {f"gpu{number:02}": text.replace("-9b6d-", f"-9b{number:02}-") for number in range(1, 41)}
    hosts = [{**json.loads(document), "hostname": name} for name, document in of_host.items()]
    spec, path = place / "gpustack.yaml", place / "hosts.json"
    spec.write_text(SPEC)
    path.write_text(json.dumps({"gpustack_snapshot": 1, "hosts": hosts}))
    return str(spec), str(path)


def command(fleet: tuple[str, str], words: tuple[str, ...], *options: str) -> list[str]:
    return [*(fleet[0] if word == "SPEC" else word for word in words), "--snapshot", fleet[1], *options]


def test_forty_equal_hosts_are_shown_once(fleet: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    lines = 0
    for words in READING:
        text = printed(capsys, *command(fleet, words))
        lines += text.count("\n")
        assert "gpu[01:40]" in text, words
        assert "gpu02" not in text, words
        assert text.splitlines()[-1].startswith("Total: 40 hosts, "), words
    assert lines <= 120


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_each_shows_every_host(
    words: tuple[str, ...], fleet: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, *command(fleet, words, "--each"))
    assert all(f"gpu{number:02}" in text for number in range(1, 41))
    assert "gpu[01:40]" not in text


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_data_have_an_entry_for_each_host_with_its_group(
    words: tuple[str, ...], fleet: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads(printed(capsys, *command(fleet, words, "-f", "json")))
    entries = data["files"] if isinstance(data, dict) else data
    of_hosts = [entry for entry in entries if entry["group"] == "gpu[01:40]"]
    assert {entry.get("host", entry.get("target")) for entry in of_hosts} == {f"gpu{n:02}" for n in range(1, 41)}


def test_a_host_with_another_fact_is_shown_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hosts = [{**snapshot("k4200"), "hostname": f"gpu{number:02}"} for number in range(1, 6)]
    hosts[2]["pci"] = [f for f in hosts[2]["pci"] if not f["address"].startswith("0000:88")]
    path = tmp_path / "hosts.json"
    path.write_text(json.dumps({"gpustack_snapshot": 1, "hosts": hosts}))
    text = printed(capsys, "scan", "--snapshot", str(path))
    assert [line.split("|")[1].strip() for line in text.splitlines() if "0000:84" in line] == [
        "gpu[01:02], gpu[04:05]",
        "gpu03",
    ]
    assert "Total: 5 hosts, 9 GPUs; 9 preparable" in text
