"""Which nova-compute a host of the inventory is."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gpustack.cloud.closed import MAINTENANCE, Reasons, parse
from gpustack.cloud.compute import Service
from gpustack.prepare.drain.drain import reason
from gpustack.prepare.drain.service_lookup import find_service
from gpustack.prepare.plugin_api import service_target

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)


def services(*hosts: str) -> list[Service]:
    return [Service(id=str(number), host=host, enabled=True, up=True) for number, host in enumerate(hosts)]


@pytest.mark.parametrize(
    ("host", "own_name", "configured", "registered", "expected"),
    [
        ("gpu1", "gpu1", "", ["gpu1", "gpu10"], "gpu1"),
        ("gpu1", "gpu1.example.org", "", ["gpu1.example.org"], "gpu1.example.org"),
        ("GPU1", None, "", ["gpu1"], "gpu1"),
        ("alias", "gpu1", "", ["gpu1"], "GPU621"),
        ("10.0.0.1", "gpu1", "", ["gpu1"], "GPU621"),
        ("10.0.0.1", "10.0.0.2", "", ["10.0.0.2"], "GPU621"),
        ("10.0.0.1", None, "", ["10.0.0.2"], None),
        ("gpu9", "gpu1", "", ["gpu1"], "GPU621"),
        ("gpu1", "gpu1", "", ["gpu2"], None),
        ("gpu1", "gpu1", "", [], None),
        ("gpu1", "gpu1", "", ["gpu1.rack2.example.org"], "GPU603"),
        ("gpu1.example.org", "gpu1.example.org", "", ["gpu1"], "GPU603"),
        ("gpu1", "gpu1.example.org", "", ["gpu1", "gpu1.example.org"], "GPU603"),
        ("gpu1", "gpu2", "", ["gpu1", "gpu2"], "GPU603"),
        ("gpu1", "gpu1", "gpu1.rack2.example.org", ["gpu1", "gpu1.rack2.example.org"], "gpu1.rack2.example.org"),
        ("gpu1", "gpu1", "gpu9", ["gpu1"], "GPU602"),
        ("gpu1", "gpu1", "gpu1", ["gpu1", "gpu1"], "GPU602"),
    ],
)
def test_a_service_is_found_by_its_name_or_not_at_all(
    host: str, own_name: str | None, configured: str, registered: list[str], expected: str | None
) -> None:
    service, findings = find_service(host, own_name, configured, services(*registered))
    if expected is not None and expected.startswith("GPU"):
        assert (service, [finding.code for finding in findings]) == (None, [expected])
    else:
        assert (service.host if service else None, findings) == (expected, ())


@pytest.mark.parametrize(
    ("host", "own_name", "configured", "registered", "other_hosts", "code"),
    [
        ("gpu9", "gpu1", "", ["gpu1", "gpu2"], ["gpu1", "gpu2"], "GPU621"),
        ("gpu1.rack1", "gpu1.rack2", "", ["gpu1.rack2"], ["gpu1.rack2"], "GPU620"),
        ("gpu1", "gpu1.rack2", "", ["gpu1.rack2"], ["gpu1.rack2"], "GPU620"),
        ("gpu1.rack1", "gpu1", "", ["gpu1"], ["gpu1.rack2"], "GPU620"),
        ("gpu1", "gpu1", "", ["gpu1"], ["GPU1"], "GPU620"),
        ("gpu9", "gpu9", "gpu1", ["gpu1", "gpu9"], ["gpu1"], "GPU620"),
    ],
)
def test_a_host_that_lies_about_its_name_gets_no_other_hosts_service(
    host: str, own_name: str, configured: str, registered: list[str], other_hosts: list[str], code: str
) -> None:
    service, (finding,) = find_service(host, own_name, configured, services(*registered), other_hosts)
    assert (service, finding.code) == (None, code)


def test_a_name_that_is_no_text_is_no_name() -> None:
    assert service_target("gpu1", {"hostname": ["gpu2"]}, "").own_name is None


def test_the_reason_fits_and_is_known_again() -> None:
    text = Reasons().plus(MAINTENANCE, reason("the running kernel was started without intel_iommu=on; " * 9, NOW))
    stored = text.to_text()
    assert stored.startswith("gpustack: maintenance (since 2026-11-21T09:00:00Z: the running kernel")
    assert len(stored) <= 255
    assert MAINTENANCE in parse(stored).own
