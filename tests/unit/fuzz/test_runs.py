"""Many hosts in one run, each with other hardware: what a scan and a playbook make of hostile answers of some."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustack.configure import plugin_api as nova
from gpustack.connect.playbooks.record import Record
from gpustack.connect.playbooks.show import line, problems
from gpustack.connect.ssh.config import SshOptions
from gpustack.hosts.facts.gather import _checked, _named
from gpustack.hosts.facts.gpus import gpus
from gpustack.hosts.facts.store import parse_host
from gpustack.hosts.readiness.host import host_reasons
from gpustack.prepare import plugin_api as controller
from support.attack import JSON, TEXTS, attack, damaged, examples
from support.fuzz_inputs import THERE
from support.host_samples import SNAPSHOTS


def _documents(path: Path) -> list[dict[str, Any]]:
    document = json.loads(path.read_text(encoding="utf-8"))
    hosts: list[dict[str, Any]] = document.get("hosts", [document])
    return hosts


DOCUMENTS = [document for path in sorted(SNAPSHOTS.glob("*.json")) for document in _documents(path)]
HOSTS = st.sampled_from(DOCUMENTS).flatmap(damaged)


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A spec that names the GPUs of all hosts."""
    ids = sorted({(f["vendor"], f["product"]) for d in DOCUMENTS for f in d["pci"] if f["class"].startswith("03")})
    models = {f"m{n}": {"match": {"vendor": vendor, "product": product}} for n, (vendor, product) in enumerate(ids)}
    document = {"version": 1, "models": models, "hosts": {"*": list(models)}, "nova": {"release": "2025.2"}}
    path = tmp_path_factory.mktemp("spec") / "gpustack.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document["hostname"])
def test_honest_hosts_are_planned(spec: str, document: dict[str, Any]) -> None:
    """Else the attacks below would not get far."""
    controller.plan(spec, document, "gpu01")
    nova.for_host(
        spec,
        nova.overall(spec, {"gpu01": document}),
        "gpu01",
        services=["compute"],
        facts=document,
        module_answer=THERE,
    )


@examples(60)
@given(HOSTS, st.booleans())
def test_facts_of_any_hardware(spec: str, facts: dict[str, Any], kolla: bool) -> None:
    with attack():
        host = parse_host(facts, "gpu01")
        list(host_reasons(host))
        list(gpus(host))
    for step in (controller.plan, controller.verify_next):
        with attack():
            step(spec, facts, "gpu01")
    with attack():
        controller.undo(facts, "gpu01", force=True)
    with attack():
        decided = nova.overall(spec, {"gpu01": facts})
        nova.for_host(
            spec, decided, "gpu01", services=["compute", "api"], facts=facts, module_answer=THERE, kolla=kolla
        )


@examples(60)
@given(st.dictionaries(TEXTS, st.one_of(HOSTS, st.dictionaries(TEXTS, JSON, max_size=3)), max_size=3))
def test_hosts_that_are_scanned_are_failures_at_worst(raw: dict[str, Any]) -> None:
    with attack():
        documents, _ = _named(raw, SshOptions())
        gathered = _checked(raw, documents, {})
        assert len(gathered.hosts) + len(gathered.failures) == len(raw)


STATES = st.sampled_from(["ok", "failed", "unreachable"])
ACTIONS = st.sampled_from(["command", "gpustack_plan", "gpustack_verify", "gpustack_service", "gpustack_facts"])
KEYS = st.sampled_from(["msg", "text", "todo", "reboot", "findings", "verification", "cmd", "items", "stderr"])
RESULTS = st.one_of(JSON, st.dictionaries(KEYS, JSON, max_size=4))


@examples(60)
@given(st.lists(st.tuples(STATES, ACTIONS, RESULTS), max_size=5))
def test_events_of_a_playbook(results: list[tuple[str, str, Any]]) -> None:
    record = Record()
    with attack():
        for state, action, result in results:
            common = {
                "event": "task",
                "host": "a",
                "task": "Run",
                "phase": "",
                "changed": False,
                "done": {},
                "ignored": False,
            }
            record.take({**common, "state": state, "action": action, "result": result})
        record.take({"event": "end", "hosts": {"a": {"ok": 1}, "b": {"ok": 1}}})
        for host in record.hosts.values():
            json.dumps(host.to_dict())
            line(host)
            problems(host)
    assert record.hosts["b"].problem == ""
