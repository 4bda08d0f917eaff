"""The release workflow, and the tools that it calls: who may publish, and what is refused before a build."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.images import ran

TOP = Path(__file__).parents[2]
JOBS: dict[str, dict[str, Any]] = yaml.safe_load((TOP / ".github/workflows/release.yml").read_text(encoding="utf-8"))[
    "jobs"
]
SIGNED = {"id-token": "write", "attestations": "write"}
PERMISSIONS = {
    "publish-pypi": {"id-token": "write"},
    "publish-galaxy": {},
    "publish-images": {"packages": "write", **SIGNED},
    "publish-release": {"contents": "write", **SIGNED},
}


def steps(job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = JOBS[job]["steps"]
    return found


def before(job: str) -> set[str]:
    """The jobs that end before a job starts."""
    needs = JOBS[job].get("needs", [])
    direct = {needs} if isinstance(needs, str) else set(needs)
    return direct.union(*map(before, direct))


def test_only_publishing_jobs_may_write_and_each_only_its_own() -> None:
    assert {name: job["permissions"] for name, job in JOBS.items() if "permissions" in job} == PERMISSIONS
    environments = [job["environment"] for job in JOBS.values() if "environment" in job]
    assert len(set(environments)) == len(PERMISSIONS)
    for name in PERMISSIONS:
        assert "environment" in JOBS[name]
        assert before(name) >= {"build", "images", "test", "test-images"}
        assert not [step for step in steps(name) if "checkout" in step.get("uses", "")]


def test_a_command_takes_values_of_the_event_from_its_environment() -> None:
    commands = [step["run"] for name in JOBS for step in steps(name) if "run" in step]
    assert not [command for command in commands if "${{" in command]
    secrets = [key for name in JOBS for key in json.dumps(steps(name)).split("secrets.")[1:]]
    assert len(secrets) == 1  # Galaxy has no trusted publishing


def test_each_make_target_of_the_workflow_exists() -> None:
    makefile = (TOP / "Makefile").read_text(encoding="utf-8")
    called = {
        target
        for name in JOBS
        for step in steps(name)
        for command in re.findall(r"^make (.*)", step.get("run", ""), re.MULTILINE)
        for target in re.match(r"[a-z -]*", command)[0].split()  # type: ignore[index]
    }
    assert called == {"release-check", "sanity", "offline", "audit", "release-notes", "containers"}
    assert not [target for target in called if not re.search(rf"^{target}:", makefile, re.MULTILINE)]


@pytest.mark.parametrize("base", ["docker.io/library/debian:trixie-slim", "debian@sha256:ab", "debian:13@sha512:ab"])
def test_a_base_without_its_digest_is_refused(base: str, tmp_path: Path) -> None:
    output = ran(sys.executable, TOP / "tools/images", "--base", base, tmp_path, code=1)
    assert "an image without a digest can change" in output
    assert not list(tmp_path.iterdir())


def test_a_missing_bundle_is_an_error_before_the_build(tmp_path: Path) -> None:
    output = ran(sys.executable, TOP / "tools/images", "--base", f"debian@sha256:{'a' * 64}", tmp_path, code=1)
    assert "run `make offline`" in output


def test_checksums_list_only_files_that_are_published(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*", encoding="utf-8")
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels/a.whl").write_text("a", encoding="utf-8")
    tool = runpy.run_path(str(TOP / "tools/offline"))
    (tmp_path / "SHA256SUMS").write_text(tool["checksums"](tmp_path), encoding="utf-8")
    listed = (tmp_path / "SHA256SUMS").read_text(encoding="utf-8").split()[1::2]
    assert listed == ["wheels/a.whl"]
    subprocess.run(["sha256sum", "--quiet", "--check", "SHA256SUMS"], cwd=tmp_path, check=True)


def test_the_notes_are_the_head_of_the_changelog() -> None:
    notes = ran(sys.executable, TOP / "tools/release", "--notes")
    heads = re.findall(r"^## .*", (TOP / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert notes.startswith(heads[0])
    assert not [head for head in heads[1:] if head in notes]
