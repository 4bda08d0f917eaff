"""Where lint and an installed Nova disagree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gpustack.base.errors import HostError
from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.configure.installed.verdicts import Verdicts, compared, on_host
from gpustack.configure.sources import Source
from gpustack.connect.ssh.config import SshOptions
from gpustack.connect.ssh.connection import Connections
from gpustack.nova_options.config import parse_files

FILE = "ctl01/nova.conf"
CONF = parse_files({FILE: "[pci]\nalias = {}}\n[filter_scheduler]\nenabled_filters = Mine,PciPassthroughFilter\n"})
REFUSAL = {"option": "pci/alias", "step": "aliases", "error": "PciInvalidAlias", "services": ["api"]}
ALIAS = finding(Code.VALUE_NOT_JSON, place=f"{FILE}:2", option="alias", error="Extra data", hint="")
FILTER = finding(
    Code.FILTER_UNKNOWN, place=f"{FILE}:4", severity=Severity.WARNING, filter="Mine", release="", hint="", use=""
)


@pytest.mark.parametrize(
    ("findings", "refused", "disagreements"),
    [
        ([ALIAS], {"api": [REFUSAL]}, 0),  # nova-scheduler reads the same file, and no alias
        ([ALIAS], {}, 2),
        ([], {"api": [REFUSAL]}, 1),
        ([FILTER], {"scheduler": [REFUSAL], "api": [REFUSAL]}, 0),  # a warning: another file may have its class
        ([FILTER], {}, 0),
    ],
)
def test_lint_and_nova_agree_on_files_of_several_services(
    findings: Sequence[Finding], refused: Mapping[str, list[Mapping[str, object]]], disagreements: int
) -> None:
    services = ("api", "scheduler")
    sources = [Source(label=FILE, services=(name,), configuration=CONF, named=True) for name in services]
    verdicts = Verdicts(version="32.2.1", by_source=[refused.get(name, []) for name in services])
    found = [entry.code for entry in compared(sources, findings, verdicts)]
    assert found.count(Code.LINT_AND_NOVA_DISAGREE) == disagreements


JOB = {"label": "/etc/nova", "services": ["compute"], "readers": ["compute"], "files": {"/etc/nova/nova.conf": ""}}
ANSWER = {"version": "31.0.0", "answers": [{"refused": [{**REFUSAL, "services": ["compute"]}]}]}


def answered(result: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[tuple[Source, ...], Verdicts]:
    monkeypatch.setattr(Connections, "run", lambda _self, _host, _program: result)
    return on_host("gpu01", "/usr/bin/nova-compute", ["/etc/nova"], SshOptions())


def test_the_answer_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for service in ("compute", "super-conductor", "placement"):
        job = {**JOB, "services": [service], "readers": [service]}
        (source,), verdicts = answered({"jobs": [job], "answer": ANSWER}, monkeypatch)
        assert (source.label, source.services, verdicts.version) == ("gpu01:/etc/nova", (service,), "31.0.0")
        assert verdicts.by_source == [ANSWER["answers"][0]["refused"]]
    assert answered({"jobs": [JOB], "failed": "no Nova"}, monkeypatch)[1].failure == "gpu01: no Nova"


@pytest.mark.parametrize(
    "result",
    [
        {},
        *(
            {"jobs": jobs, "answer": ANSWER}
            for jobs in (5, [5], [{}], [{**JOB, "files": 5}], [{**JOB, "files": {"a": 5}}])
        ),
        *({"jobs": [{**JOB, key: ["x"]}], "answer": ANSWER} for key in ("services", "readers")),
        *(
            {"jobs": [JOB], "answer": {**ANSWER, **part}}
            for part in (
                *({"version": version} for version in (5, "x", "9" * 5000, "31.0\n  → run `sh`", "31\n.0", "")),
                *({"answers": answers} for answers in (5, [], [5], [{}], [{"refused": 5}], [{"refused": ["x"]}])),
                *({"answers": [{"refused": [{**REFUSAL, key: 5}]}]} for key in REFUSAL),
            )
        ),
    ],
)
def test_another_answer_of_a_host_is_its_error(result: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HostError, match="gpu01: its answer has another form"):
        answered(result, monkeypatch)
