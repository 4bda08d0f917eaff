"""Options as usage lines write them."""

import argparse
import gzip
import io
import lzma
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from gpustack.base.errors import HostError, SnapshotError, UsageError
from gpustack.cli.app import Gpustack, main
from gpustack.cli.options import WRITTEN, Once, add_snapshot, option, read_log, refuse_written_inputs, snapshot_hosts
from gpustack.cli.registry import command_class
from gpustack.hosts.facts.store import save_snapshot
from support.host_samples import raw_host


@pytest.mark.parametrize(
    ("usage", "words", "value"),
    [
        ("--prune", [], False),
        ("--prune", ["--prune"], True),
        ("--host NAME", ["--host", "a", "--host", "b"], "b"),
        ("--host NAME…", ["--host", "a", "--host", "b"], ["a", "b"]),
        ("--out FILE", ["--out", "-"], Path("-")),
        ("--out FILE…", ["--out", "a"], [Path("a")]),
        ("--out PATTERN", ["--out", "a"], "a"),
    ],
)
def test_usage_decides_the_kind_of_an_option(usage: str, words: list[str], value: object) -> None:
    parser = argparse.ArgumentParser()
    option(parser, usage, "text", dest="value")
    assert parser.parse_args(words).value == value


def read(action: argparse.Action, text: str) -> object:
    """A value, None if the option refuses it."""
    try:
        return action.type(text) if callable(action.type) else None
    except (ValueError, argparse.ArgumentTypeError):
        return None


COMMANDS = sorted(entry.name.replace("_", " ") for entry in entry_points(group="gpustack.cli"))
NUMBERS = [
    (command, action)
    for command in COMMANDS
    for action in command_class(command)(Gpustack(), None, cmd_name=command).get_parser(command)._actions
    if callable(action.type) and action.dest not in ("seed", "max_width") and isinstance(read(action, "3"), int | float)
]


@pytest.mark.parametrize(("command", "action"), NUMBERS, ids=lambda part: getattr(part, "dest", part))
def test_numbers_have_bounds(command: str, action: argparse.Action) -> None:
    """A typing error turns no protection off, and the time, Nova or Ansible refuses no number later."""
    assert not [text for text in ("nan", "inf", "-inf", "-1", "1e400", "9" * 30, "²") if read(action, text) is not None]


FILES = [
    (command, action)
    for command in COMMANDS
    for action in command_class(command)(Gpustack(), None, cmd_name=command).get_parser(command)._actions
    if action.type is Path and action.option_strings and not str(action.help).startswith("write the files")
]


def test_each_option_whose_file_is_written_is_known() -> None:
    """See :func:`test_no_file_that_is_read_is_written`."""
    written = [one for one in FILES if re.match(r"(also )?(write|save|draw)\b", str(one[1].help))]
    assert {action.dest for _, action in written} == WRITTEN
    assert not [one for one in FILES if one[1].dest in WRITTEN and one not in written]


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_no_file_that_is_read_is_written(tmp_path: Path, name: str) -> None:
    """A name that is given twice by mistake destroys no spec and no nova.conf."""
    spec, other, missing = tmp_path / "gpustack.yaml", tmp_path / "other", tmp_path / "missing"
    for path in (spec, other):
        path.touch()
    (tmp_path / "link").symlink_to(spec)
    for written, read in ((spec, spec), (tmp_path / "link", spec), (spec, [other, spec])):
        with pytest.raises(UsageError, match=rf"--{name} would change .*, which is read"):
            refuse_written_inputs({"spec": read, name: written})
    refuse_written_inputs({"spec": spec, name: other, "snapshot": [other], "merge": other, "host": "other"})
    refuse_written_inputs({"spec": missing, name: missing, "journal": missing})


def test_a_second_source_is_refused_instead_of_lost(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    option(parser, "--root DIR", "text", action=Once)
    assert parser.parse_args(["--root", "a", "--root", "a"]).root == Path("a")
    with pytest.raises(SystemExit):
        parser.parse_args(["--root", "a", "--root", "b"])
    assert "argument --root: a and b: it can't be repeated" in capsys.readouterr().err


def test_further_arguments_win() -> None:
    parser = argparse.ArgumentParser()
    option(parser, "--out DIR", "text", type=str, default="there")
    assert parser.parse_args([]).out == "there"
    assert parser.parse_args(["--out", "x"]).out == "x"
    assert "--out DIR" in parser.format_help()


def test_snapshot_is_added_and_read_in_one_place(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    add_snapshot(parser, ", for sizes")
    assert "for sizes" in " ".join(parser.format_help().split())
    assert snapshot_hosts(parser.parse_args([])) == ()
    for name in ("a", "b"):
        save_snapshot(tmp_path / name, [raw_host(hostname=name)])
    (tmp_path / "c").mkdir()
    save_snapshot(tmp_path / "c/b.json", [raw_host(hostname="b", memory_mib=7)])
    words = [f"--snapshot={tmp_path}/{name}" for name in "ab"]
    assert [host.hostname for host in snapshot_hosts(parser.parse_args(words))] == ["a", "b"]
    with pytest.raises(SnapshotError, match=f"host b: {tmp_path}/b:2 differs"):
        snapshot_hosts(parser.parse_args([*words, "--snapshot", str(tmp_path / "c")]))


def test_chosen_lines_are_read_from_a_log_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpustack.cli.options._LOG", 16)
    log = tmp_path / "nova-scheduler.log"
    log.write_bytes(b"GPU 1\n" + b"other text\n" * 4 + b"GPU 2\nend\n")
    assert (read_log(str(log)), read_log(str(log), lambda line: b"GPU" in line)) == (
        b"r text\nGPU 2\nend\n"[-16:],
        b"GPU 1\nGPU 2\n",
    )
    log.write_bytes(b"GPU 1\nmore text\n")
    assert read_log(str(log), lambda line: b"GPU" in line) == b"GPU 1\nmore text\n"  # the parts of a short one
    with pytest.raises(HostError, match="it has no lines"):
        read_log("/dev/zero", lambda line: True)
    with pytest.raises(HostError, match="No such file"):
        read_log(str(tmp_path / "none"), lambda line: True)


@pytest.mark.parametrize(
    "packed",
    [gzip.compress(b"NVRM: text\n"), lzma.compress(b"NVRM: text\n"), b"LPKSHHRH\0\0"],
    ids=["gzip", "xz", "journal"],
)
def test_a_log_that_is_no_text_is_refused(packed: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "kern.log.2.gz"
    log.write_bytes(packed)
    with log.open("rb") as stream:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
        for name in (str(log), "-"):
            with pytest.raises(HostError, match="it is compressed, or a binary journal"):
                read_log(name)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("scan", ("--save",)),
        ("scan", ("--findings",)),
        ("cleanup plan", ("--metrics",)),
        ("capacity", ("spec.yaml", "--plot")),
    ],
)
def test_a_file_that_can_not_be_written_is_refused_before_the_work(
    command: str,
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command_class(command), "take_action", None)
    for written, reason in (("missing/x", "No such file or directory"), (".", "Is a directory")):
        assert main([*command.split(), *words, written]) == 1
        assert f"{written}: can't be written: {reason}; nothing was done" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
