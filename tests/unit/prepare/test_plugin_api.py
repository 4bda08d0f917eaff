"""What the roles read of a result is among its keys."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from gpustack.base.errors import UsageError
from gpustack.configure.plugin_api import NovaHostResult
from gpustack.hosts.facts.store import load_snapshot
from gpustack.prepare.plugin_api import HostPlanResult, SavedResult, ServiceResult, TrialState, plan, save
from support.host_samples import raw_host

ROLES = Path(__file__).parents[3] / "playbooks" / "roles"
READ = {
    "gpustack_planned": HostPlanResult,
    "gpustack_planned.trial": TrialState,
    "gpustack_nova_wanted": NovaHostResult,
    "gpustack_in_service": ServiceResult,
    "gpustack_saved": SavedResult,
}


@pytest.mark.parametrize("variable", READ)
def test_roles_read_keys_that_results_have(variable: str) -> None:
    texts = [path.read_text(encoding="utf-8") for path in ROLES.rglob("*.yml")]
    reads = {key for text in texts for key in re.findall(rf"\b{re.escape(variable)}\.(\w+)", text)}
    assert reads
    assert reads - get_type_hints(READ[variable]).keys() == set()


def test_a_snapshot_has_the_facts_that_can_be_read_again(tmp_path: Path) -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    answers = {"gpu01": raw_host(), "gpu02": raw_host(x=nested), "gpu03": {}, "gpu04": raw_host(x="y" * (16 << 20))}
    facts = {name: (f"{name}.example.org", answer) for name, answer in answers.items()}
    saved = save(str(tmp_path), facts, {"gpu05": "why"}, ["gpu06"], check=False)
    (path,) = tmp_path.iterdir()
    assert saved["path"] == str(path)
    assert [host.hostname for host in load_snapshot(path)] == ["gpu01.example.org"]
    assert saved["text"] == f"{path} has the facts of 1 host; no facts of gpu[02:06]"
    assert saved["unusable"].keys() == {"gpu02", "gpu03", "gpu04", "gpu05"}


def test_without_facts_no_snapshot_is_written(tmp_path: Path) -> None:
    saved = save(str(tmp_path / "hosts.json"), {}, {}, ["gpu06"], check=False)
    assert saved["text"] == "no facts, no snapshot; no facts of gpu06"
    assert not list(tmp_path.iterdir())


def test_a_trial_boot_without_time_is_refused(tmp_path: Path) -> None:
    spec = tmp_path / "gpustack.yaml"
    spec.write_text('version: 1\nmodels: {p100: {match: {vendor: "10de", product: "15f8"}}}\nhosts: {gpu01: [p100]}\n')
    with pytest.raises(UsageError, match="a trial boot of 0 s"):
        plan(str(spec), raw_host(), "gpu01", trial=0)
