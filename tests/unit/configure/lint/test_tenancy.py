"""The options of nova-scheduler, if the spec reserves GPU hosts."""

from __future__ import annotations

import pytest

from gpustack.configure.lint import judged
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.sources import Source
from gpustack.nova_options.config import parse_files
from gpustack.nova_options.releases import release
from gpustack.spec.tenancy import GpuAggregate, Tenancy

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
