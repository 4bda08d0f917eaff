"""Readers of what hosts and files hold, driven with whatever hypothesis makes up: gpustack's own errors, or none."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpustack import controller
from gpustack.errors import GpustackError
from gpustack.facts.gather import _checked, _named
from gpustack.facts.gpus import gpus
from gpustack.facts.readiness import host_reasons
from gpustack.facts.store import parse_host, parse_snapshot
from gpustack.nova import controller as nova
from gpustack.play.record import Record
from gpustack.play.show import line, problems

SAMPLES = sorted((Path(__file__).parent / "data/snapshots").glob("*.json"))
TEXTS = st.one_of(
    st.text(max_size=40), st.sampled_from(["", "../../etc/passwd", "\x1b[2J", "${a}$a", "0" * 5000, "nan"])
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=8,
)
THERE = {"files": [{"path": "/etc/nova/nova.conf", "text": "[pci]\n"}]}
QUICK = settings(max_examples=60, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])


def settings_of(text: str) -> str:
    """A nova.conf with a made-up value."""
    return f"[pci]\nalias = {text}\ndevice_spec={text}\n"


def _documents() -> list[dict[str, Any]]:
    hosts = []
    for path in SAMPLES:
        document = json.loads(path.read_text(encoding="utf-8"))
        hosts += document.get("hosts", [document])
    return hosts


@st.composite
def hosts(draw: st.DrawFn) -> Any:
    """The facts of an honest host, of which up to three values are replaced."""
    document = copy.deepcopy(draw(st.sampled_from(_documents())))
    for _ in range(draw(st.integers(1, 3))):
        place: Any = document
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if not isinstance(place[key], dict | list) or draw(st.integers(0, 3)) == 0:
                place[key] = draw(VALUES)
                break
            place = place[key]
    return document


@contextlib.contextmanager
def nothing_written(directory: Path) -> Iterator[None]:
    """Own errors are accepted; files are not."""
    before = sorted(directory.rglob("*"))
    with contextlib.suppress(GpustackError):
        yield
    assert sorted(directory.rglob("*")) == before


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A spec in the only directory where anything could be written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ids = sorted({(f["vendor"], f["product"]) for d in _documents() for f in d["pci"] if f["class"].startswith("03")})
    models = {f"m{n}": {"match": {"vendor": vendor, "product": product}} for n, (vendor, product) in enumerate(ids)}
    document = {"version": 1, "models": models, "hosts": {"*": list(models)}, "nova": {"release": "2025.2"}}
    (tmp_path / "gpustack.yaml").write_text(json.dumps(document), encoding="utf-8")
    return str(tmp_path / "gpustack.yaml")


@pytest.mark.parametrize("document", _documents(), ids=lambda document: document["hostname"])
def test_honest_hosts_are_planned(spec, document):
    """Otherwise the tests below would try nothing but refusals."""
    controller.plan(spec, document, "gpu01")
    nova.for_host(
        spec, nova.overall(spec, {"gpu01": document}), "gpu01", services=["compute"], facts=document, there=THERE
    )


@QUICK
@given(raw=st.one_of(hosts(), VALUES))
def test_facts_are_planned_or_refused(spec, tmp_path, raw):
    with nothing_written(tmp_path):
        host = parse_host(raw, "gpu01")
        list(host_reasons(host))
        list(gpus(host))
    for step in (controller.plan, controller.verify_next):
        with nothing_written(tmp_path):
            step(spec, raw, "gpu01") if isinstance(raw, dict) else None
    with nothing_written(tmp_path):
        controller.undo(raw, "gpu01", force=True) if isinstance(raw, dict) else None


@QUICK
@given(raw=st.dictionaries(TEXTS, st.one_of(hosts(), st.dictionaries(TEXTS, VALUES, max_size=3)), max_size=3))
def test_hosts_that_are_scanned_are_failures_at_worst(raw):
    documents, _ = _named(raw)
    gathered = _checked(raw, documents, {})
    assert len(gathered.hosts) + len(gathered.failures) == len(raw)


@QUICK
@given(text=st.one_of(st.binary(max_size=200), VALUES.map(lambda value: json.dumps(value).encode())))
def test_snapshots_are_read_or_refused(tmp_path, text):
    with nothing_written(tmp_path):
        parse_snapshot(text, "a file")


@QUICK
@given(
    there=st.fixed_dictionaries(
        {
            "files": st.one_of(
                VALUES,
                st.lists(
                    st.fixed_dictionaries(
                        {
                            "path": st.one_of(TEXTS, st.just("/etc/nova/nova.conf")),
                            "text": st.one_of(
                                TEXTS, TEXTS.map(lambda text: f"[pci]\nalias = {text}\ndevice_spec={text}\n")
                            ),
                        }
                    ),
                    max_size=3,
                ),
            )
        },
        optional=dict.fromkeys(("units", "engine", "started", "pending"), VALUES),
    ),
    facts=st.one_of(st.none(), hosts()),
    kolla=st.booleans(),
)
def test_nova_configuration_is_decided_or_refused(spec, tmp_path, there, facts, kolla):
    with nothing_written(tmp_path):
        decided = nova.overall(spec, {"gpu01": facts} if facts else {})
        nova.for_host(spec, decided, "gpu01", services=["compute", "api"], facts=facts, there=there, kolla=kolla)


@QUICK
@given(
    results=st.lists(
        st.tuples(
            st.sampled_from(["ok", "failed", "unreachable"]),
            st.sampled_from(["command", "gpustack_plan", "gpustack_verify", "gpustack_service", "gpustack_facts"]),
            st.one_of(
                VALUES,
                st.dictionaries(
                    st.sampled_from(
                        ["msg", "text", "todo", "reboot", "findings", "verification", "cmd", "items", "stderr"]
                    ),
                    VALUES,
                    max_size=4,
                ),
            ),
        ),
        max_size=5,
    )
)
def test_events_are_records(results):
    record = Record()
    for state, action, result in results:
        common = {"event": "task", "host": "a", "task": "Run", "changed": False, "ignored": False}
        record.take({**common, "state": state, "action": action, "result": result})
    record.take({"event": "end", "hosts": {"a": {"ok": 1}, "b": {"ok": 1}}})
    for one in record.hosts.values():
        json.dumps(one.to_dict())
        line(one)
        problems(one)
    assert record.hosts["b"].problem == ""
