"""Unified limits of nova-api and the markers of hosts, if the spec has quotas; reserved hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.configure.lint import judged, lint
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.sources import Source
from gpustack.nova_options.config import parse_files
from gpustack.nova_options.markers import DROP_IN
from gpustack.nova_options.releases import release
from gpustack.spec.tenancy import GpuAggregate, Tenancy
from support.fleet_answers import facts


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
    results = judged(LintSubject(sources=[source], release=release("2025.2"), limited=limited))
    findings = [finding for result in results for finding in result.findings]
    assert [finding.place for finding in findings if finding.code == "GPU750"] == found


UNIFIED = "[quota]\ndriver = nova.quota.UnifiedLimitsDriver\n[oslo_limit]\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (UNIFIED, ["api"]),
        (UNIFIED + "endpoint_id =\n", ["api"]),
        (UNIFIED + "endpoint_id = 7\n", []),
        (UNIFIED + "endpoint_service_type = compute\n", []),
        (UNIFIED + "endpoint_id = {{ endpoint }}\n", []),
        ("[quota]\n", []),
    ],
)
def test_endpoint(text: str, found: list[str]) -> None:
    source = Source(label="api", services=("api",), configuration=parse_files({"nova.conf": text}), named=True)
    results = judged(LintSubject(sources=[source], release=release("2025.2"), limited=True))
    assert [f.place for result in results for f in result.findings if f.code == "GPU754"] == found


PROVIDERS = """\
meta: {schema_version: "1.0"}
providers:
  - identification: {uuid: $COMPUTE_NODE}
    inventories: {additional: [{CUSTOM_GPU_QUOTA_K4200: {total: TOTAL}}, {CUSTOM_OTHER: {total: 9}}]}
"""


@pytest.mark.parametrize(
    ("name", "content", "nova_conf", "expected"),
    [
        ("gpustack.yaml", PROVIDERS.replace("TOTAL", "2"), "", []),
        ("mine.yaml", PROVIDERS.replace("TOTAL", "3"), "", ["has 3 of CUSTOM_GPU_QUOTA_K4200 in provider.yaml"]),
        (
            "gpustack.yaml",
            PROVIDERS.replace("QUOTA", "X").replace("TOTAL", "2"),
            "",
            ["has 0 of CUSTOM_GPU_QUOTA_K4200 in provider.yaml"],
        ),
        ("notes.txt", "", "", ["has 0 of CUSTOM_GPU_QUOTA_K4200 in provider.yaml"]),
        ("gpustack.yaml", "providers: 7", "", []),
        ("gpustack.yaml", PROVIDERS.replace("TOTAL", "3"), "[compute]\nprovider_config_location = /srv\n", []),
        (None, "", "", []),
    ],
)
def test_markers_of_a_host(tmp_path: Path, name: str | None, content: str, nova_conf: str, expected: list[str]) -> None:
    directory = tmp_path / "gpu1/etc/nova"
    drop_in = directory / "nova.conf.d" / DROP_IN
    drop_in.parent.mkdir(parents=True)
    drop_in.write_text("[pci]\n" + nova_conf)
    if name:
        (directory / "provider_config").mkdir()
        (directory / "provider_config" / name).write_text(content)
    marked = {"gpu1": {"CUSTOM_GPU_QUOTA_K4200": 2}, "gpu2": {"CUSTOM_GPU_QUOTA_K4200": 1}}
    hosts = [facts("gpu1", 0x81, 0x82), facts("gpu2", 0x81)]
    report = lint(
        [f"compute={drop_in}"], LintSubject(release=release("2025.2"), hosts=hosts, limited=True, marked=marked)
    )
    messages = [f.message.partition(";")[0] for f in report.findings if f.code == "GPU746"]
    assert messages == expected


ISOLATED = Tenancy(aggregates={"gpu": GpuAggregate()})
RESTRICTED = Tenancy(aggregates={"gpu": GpuAggregate(projects=("a",), isolated=False)})
BOTH = Tenancy(aggregates={"gpu": GpuAggregate(projects=("a",))})
SHARED = Tenancy(aggregates={"gpu": GpuAggregate(projects=("a", "b"))})
ON = "[scheduler]\nenable_isolated_aggregate_filtering = true\n"
FILTER = "[filter_scheduler]\nenabled_filters = PciPassthroughFilter,AggregateMultiTenancyIsolation\n"
CONFINED = "[scheduler]\nlimit_tenants_to_placement_aggregate = true\nenable_isolated_aggregate_filtering = true\n"


@pytest.mark.parametrize(
    ("tenancy", "text", "found"),
    [
        (None, "[api]\n", []),
        (ISOLATED, ON, []),
        (ISOLATED, "[api]\n", ["GPU830"]),
        (ISOLATED, "[scheduler]\nenable_isolated_aggregate_filtering = false\n", ["GPU830"]),
        (RESTRICTED, FILTER, []),
        (RESTRICTED, "[api]\n", ["GPU831"]),
        (BOTH, "[api]\n", ["GPU830", "GPU831"]),
        (BOTH, CONFINED + FILTER, ["GPU832"]),
        (SHARED, CONFINED + FILTER, []),
        (RESTRICTED, CONFINED + FILTER, []),
    ],
)
def test_scheduler(tenancy: Tenancy | None, text: str, found: list[str]) -> None:
    source = Source(
        label="scheduler", services=("scheduler",), configuration=parse_files({"nova.conf": text}), named=True
    )
    results = judged(LintSubject(sources=[source], release=release("2025.2"), tenancy=tenancy))
    codes = [finding.code.value for result in results for finding in result.findings]
    assert [code for code in codes if "GPU830" <= code <= "GPU844"] == found


def test_files_of_compute_hosts_are_not_judged() -> None:
    configuration = parse_files({"nova.conf": "[pci]\n"})
    source = Source(label="a", services=("scheduler", "compute"), configuration=configuration, named=False)
    results = judged(LintSubject(sources=[source], release=release("2025.2"), tenancy=BOTH))
    assert not [f for result in results for f in result.findings if "GPU830" <= f.code.value <= "GPU844"]
