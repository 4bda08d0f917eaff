"""Slices of a fleet, each with plain ansible-playbook, leave records that join to what one controller plans."""

from __future__ import annotations

import json
from pathlib import Path

from gpustack.cli.app import main
from support.joined_plans import differences
from support.playbook_place import Place

PLUGIN = "nova_gpustack.passthrough.gpustack_events"


def test_plans_of_slices_join_to_the_plan_of_one_controller(place: Place, tmp_path: Path) -> None:
    roots = {name: place.add(name.partition("-")[0], name) for name in ("talk", "talk-2", "shared", "epyc")}
    records = tmp_path / "records"
    records.mkdir()
    place.environment = {"ANSIBLE_CALLBACKS_ENABLED": PLUGIN, "GPUSTACK_RECORD": str(records)}
    assert place.play("plan", "--limit", "talk,shared").code == 2
    assert place.play("plan", "--limit", "talk-2,epyc").code == 0
    assert [path.stat().st_mode & 0o777 for path in records.iterdir()] == [0o600] * 2
    facts = []
    for name, root in roots.items():
        main(["-q", "scan", "--root", str(root), "--save", str(tmp_path / "one.json")])
        facts += [{**json.loads((tmp_path / "one.json").read_text(encoding="utf-8"))["hosts"][0], "hostname": name}]
    fleet = tmp_path / "fleet.json"
    fleet.write_text(json.dumps({"gpustack_snapshot": 1, "hosts": facts}), encoding="utf-8")
    assert differences(tmp_path / "gpustack.yaml", fleet, records) == []
    fleet.write_text(json.dumps({"gpustack_snapshot": 1, "hosts": facts[1:]}), encoding="utf-8")
    assert differences(tmp_path / "gpustack.yaml", fleet, records)[0] == "talk"


def test_a_job_of_ansible_runner_has_the_record_among_its_artifacts(place: Place, tmp_path: Path) -> None:
    place.add("talk")
    artifacts = tmp_path / "artifacts"
    artifacts.mkdir()
    place.environment = {"ANSIBLE_CALLBACKS_ENABLED": PLUGIN, "AWX_ISOLATED_DATA_DIR": str(artifacts)}
    run = place.play("verify")
    assert run.code == 2
    (record,) = artifacts.iterdir()
    host = json.loads(record.read_text(encoding="utf-8"))["hosts"][0]
    assert (host["host"], host["outcome"]) == ("talk", "not ready")


def test_a_record_that_cannot_be_written_is_an_error_of_the_run(place: Place, tmp_path: Path) -> None:
    place.add("talk")
    (tmp_path / "file").touch()
    place.environment = {"ANSIBLE_CALLBACKS_ENABLED": PLUGIN, "GPUSTACK_RECORD": str(tmp_path / "file" / "a.json")}
    assert "the record of the run can't be written" in place.play("plan").output
