"""One host of a run answers whatever it likes: it harms itself only."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from gpustack.connect.playbooks.inventory import interpreter
from support.playbook_place import Place, environment

DEEP: Any = 5
for _ in range(400):
    DEEP = [DEEP]
ANSWERS: dict[str, dict[str, Any]] = {
    "types": {"findings": 5, "verification": {"x": 1}, "todo": [], "reboot": 7, "text": {}, "msg": 5, "cmd": {"a": 1}},
    "success": {"facts": {}, "verification": {"ready": True}, "text": "all is well", "initramfs": {}},
    "failure": {"failed": True, "findings": 5, "msg": ["x"], "cmd": [5], "stderr": {"x": 1}, "results": 5},
    "deep": {"failed": True, "msg": DEEP, "findings": DEEP},
    "variables": {
        "ansible_facts": {"gpustack_root": "ROOT", "gpustack_hostname": "talk", "gpustack_spec": "/etc/hostname"},
        "facts": {},
    },
    "keys of Ansible's own": {
        "add_host": {"host_name": "talk", "groups": ["all"], "host_vars": {"gpustack_root": "ROOT"}},
        "add_group": "all",
        **dict.fromkeys(("deprecations", "diff", "exception", "invocation", "ansible_facts"), 5),
        **{key: {"a": [5]} for key in ("stdout_lines", "attempts", "ansible_job_id", "finished", "ansible_stats")},
        "warnings": [5],
        "_ansible_delegated_vars": 5,
        "facts": {},
    },
}


@pytest.mark.parametrize("answer", sorted(ANSWERS))
def test_a_hostile_answer_fails_its_own_host_only(place: Place, answer: str) -> None:
    place.add("talk")
    evil = place.add("talk", "talk-evil")
    place.inventory()
    program = place.path / "python"
    text = json.dumps({"changed": False, **ANSWERS[answer]}).replace("ROOT", str(evil.with_name("talk")))
    program.write_text(f"#!{interpreter()}\nprint({text!r})\n", encoding="utf-8")
    program.chmod(0o755)
    inventory = json.loads((place.path / "inventory.json").read_text(encoding="utf-8"))
    inventory["all"]["hosts"]["talk-evil"]["ansible_python_interpreter"] = str(program)
    (place.path / "inventory.json").write_text(json.dumps(inventory), encoding="utf-8")
    process = subprocess.run(
        [
            *(sys.executable, "-m", "gpustack", "host", "verify", "gpustack.yaml", "-f", "json"),
            *("-i", str(place.path / "inventory.json"), "--log", str(place.path / "the.log")),
        ],
        cwd=place.path,
        env=environment(place.path),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "Traceback" not in process.stderr
    hosts = {result["host"]: result for result in json.loads(process.stdout)}
    assert hosts["talk"]["outcome"] == "not ready", process.stderr
    assert hosts["talk-evil"]["outcome"] in ("failed", "unreachable"), process.stderr
    assert not hosts["talk-evil"]["verified"]
    assert hosts["talk-evil"]["problem"]
