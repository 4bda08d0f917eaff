"""The action plugins, without a host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gpustack.base.files import share_dir
from support.playbook_place import environment


def test_missing_gpustack_is_reported_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "gpustack.py").write_text("raise ImportError('as if it were not installed')\n", encoding="utf-8")
    (tmp_path / "play.yml").write_text("[{hosts: localhost, gather_facts: false, tasks: [{gpustack_plan: {}}]}]\n")
    process = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "play.yml"],
        cwd=tmp_path,
        env={
            **environment(tmp_path),
            "PYTHONPATH": str(tmp_path),
            "ANSIBLE_ACTION_PLUGINS": str(share_dir("playbooks") / "action_plugins"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode != 0
    assert f"gpustack is not installed for the Python that runs Ansible, {sys.executable}" in process.stderr
    assert "Traceback" not in process.stdout + process.stderr
