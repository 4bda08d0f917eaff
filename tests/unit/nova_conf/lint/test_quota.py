"""The quota driver of nova-api, if the spec has quotas."""

from __future__ import annotations

import pytest

from gpustack.nova_conf.lint import judged
from gpustack.nova_conf.sources import Source
from gpustack.nova_options.config import parse_files
from gpustack.nova_options.markers import DROP_IN
from gpustack.nova_options.releases import release


@pytest.mark.parametrize(
    ("name", "text", "limited", "found"),
    [
        ("nova.conf", "[quota]\ndriver = nova.quota.UnifiedLimitsDriver\n", True, []),
        ("nova.conf", "[quota]\ndriver = nova.quota.DbQuotaDriver\n", True, ["nova.conf:2"]),
        ("nova.conf", "[api]\n", True, ["api"]),
        ("nova.conf", "[api]\n", False, []),
        (DROP_IN, "[pci]\n", True, []),
    ],
)
def test_driver(name: str, text: str, limited: bool, found: list[str]) -> None:
    source = Source(label="api", services=("api",), configuration=parse_files({name: text}), named=True)
    results = judged([source], release=release("2025.2"), limited=limited)
    findings = [finding for result in results for finding in result.findings]
    assert [finding.place for finding in findings if finding.code == "GPU750"] == found
