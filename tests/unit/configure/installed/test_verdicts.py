"""Where lint and an installed Nova disagree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.configure.installed.verdicts import Verdicts, compared
from gpustack.configure.sources import Source
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
