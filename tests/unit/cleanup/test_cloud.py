"""A cloud whose Placement can't be asked: a clear error, nothing written, and no password anywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cellfile import CellFile, fill, nova_conf

SECRET = "s3cr3t-of-the-cloud"


@pytest.mark.parametrize("action", ["plan", "apply"])
def test_a_cloud_that_does_not_answer(tmp_path: Path, action: str) -> None:
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    fill(cell)
    before = cell.dump()
    conf = nova_conf(tmp_path, {"cell1": cell.url})
    auth = {"auth_url": "http://127.0.0.1:1/v3", "username": "admin", "password": SECRET, "project_name": "admin"}
    clouds = tmp_path / "clouds.json"
    clouds.write_text(json.dumps({"clouds": {"mine": {"auth": {**auth, "user_domain_name": "d"}}}}))
    journal = tmp_path / "journal"
    more = ["--yes", "--no-hypervisor", "--journal", str(journal)] if action == "apply" else []
    command = [sys.executable, "-m", "gpustack", "--debug", "cleanup", action, "--os-cloud", "mine"]
    done = subprocess.run(
        [*command, "--config-file", str(conf), *more],
        env={**os.environ, "OS_CLIENT_CONFIG_FILE": str(clouds)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 21, done.stderr
    assert "Placement can't be asked" in done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert not journal.exists()
    assert cell.dump() == before
