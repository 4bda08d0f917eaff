"""Files that a command line names may be endless or private; those of the working directory count for nothing else."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from gpustack.base.files import MOST, read_end, read_text
from gpustack.configure.inspection import existing_for
from gpustack.connect.playbooks.run import AnsibleConfiguration, configuration
from support.attacks import attacked, commands, run
from support.fuzz_readers import OPENSSH, OPTIONS, WRITTEN


def test_a_new_file_is_as_private_as_the_named_documents(tmp_path: Path) -> None:
    private, public = tmp_path / "a.yaml", tmp_path / "b.yaml"
    for path, mode in ((private, 0o600), (public, 0o664)):
        path.write_text("conf: {nova: {DEFAULT: {transport_url: 'rabbit://nova:s3cret@mq'}}}\n", encoding="utf-8")
        path.chmod(mode)
    both = existing_for("openstack-helm", arguments=[str(private), str(public)], root=tmp_path)
    assert (both.mode, existing_for("openstack-helm", arguments=[str(public)], root=tmp_path).mode) == (0o600, 0o644)


def test_an_endless_file_is_an_error() -> None:
    with pytest.raises(OSError, match="too large"):
        read_text(Path("/dev/zero"), MOST)


def test_the_end_of_an_endless_log_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "console"
    log.write_bytes(b"first" + bytes(1000) + b"last")
    assert read_end(log, 4) == b"last"
    pipe = io.BytesIO(log.read_bytes())
    monkeypatch.setattr(pipe, "seekable", lambda: False)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(pipe))
    assert read_end(None, 4) == b"last"


READ = sorted(
    commands(
        *{*OPTIONS.values()} - {WRITTEN, OPENSSH, "inventory", "root", "spec", "snapshot", "console", "kernel log"}
    )
)


def odd_files(directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory, a link without an end, an endless file: an error that names it, for each command that reads it."""
    (directory / "directory").mkdir()
    (directory / "loop").symlink_to("loop")
    (directory / "zero").symlink_to("/dev/zero")
    for name in ("directory", "loop", "zero"):
        for command, argument in READ:
            code, text = run(command, argument, directory / name, directory)
            assert code or (command, argument) in (("nova lint", "paths"), ("nova render", "--from")), (command, text)


def large(directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    (directory / "large").write_bytes(b"x" * 1001)
    with pytest.raises(OSError, match="too large"):
        read_text(directory / "large", 1000)


def other_files(directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ansible.cfg", ".ansible.cfg", "group_vars", "callback_plugins"):
        (directory / name).touch()
    made = configuration({"HOME": "/nowhere"}, directory, system=directory / "none")
    assert (made.path, made.ignored) == (None, directory / "ansible.cfg")


test_an_attack_fails, test_an_attack_works_without_the_check = attacked(
    {"others": other_files, "large": large, "odd": odd_files},
    {
        "gpustack.base.files:read_text": {
            "gpustack.base.files:read_text": lambda path, *_, **__: path.read_text(encoding="utf-8")
        },
        "gpustack.connect.playbooks.run:configuration": {
            "gpustack.connect.playbooks.run:configuration": lambda _variables, directory, **_: AnsibleConfiguration(
                path=directory / "ansible.cfg", ignored=None
            )
        },
    },
)
