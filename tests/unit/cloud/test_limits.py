"""Keystone's and Placement's answers, as a stand-in for openstacksdk's connection gives them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests
from keystoneauth1.exceptions import Unauthorized
from openstack.connection import Connection

from gpustack.base.errors import CloudError
from gpustack.cloud.limits import Limit, LimitsCloud
from gpustack.cloud.session import Refused
from support.fleet_cloud import Response

ENDPOINT = {"region_id": "one"}
_A = {**ENDPOINT, "resource_name": "class:CUSTOM_A"}
LIMIT = {**_A, "id": "l1", "resource_limit": 4, "project_id": "p1", "description": None}
DEFAULT = {**_A, "id": "r1", "default_limit": 1, "description": "GPUs: a [gpustack]"}
SERVERS = {**ENDPOINT, "id": "r2", "resource_name": "servers", "default_limit": 9}


@dataclass
class StandIn:
    """A connection; answers by method and path, where the longest beginning counts."""

    system: bool = True
    region: str | None = "one"
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    sent: list[tuple[str, Any]] = field(default_factory=list)
    tokens: int = 0
    refusal: Exception | None = None

    def __post_init__(self) -> None:
        self.answers = {
            "GET /services": (200, {"services": [{"id": "nova"}]}),
            "GET /endpoints": (200, {"endpoints": [ENDPOINT, {"region_id": "two"}]}),
            "GET /limits/model": (200, {"model": {"name": "flat"}}),
            "GET /registered_limits": (200, {"registered_limits": [DEFAULT, SERVERS]}),
            "GET /limits": (200, {"limits": [LIMIT]}),
            **self.answers,
        }
        self.identity = SimpleNamespace(request=self.request, get_endpoint_data=self.get_endpoint_data)
        self.config = SimpleNamespace(auth={}, get_region_name=lambda service=None: self.region)
        self.session = SimpleNamespace(session=requests.Session())
        self.current_project_id = "own"
        self.current_project = SimpleNamespace(id="p1", name="research")
        self.placement = SimpleNamespace(
            request=lambda path, method, **_more: Response(200, {"usages": {"CUSTOM_A": 2}})
        )

    def request(self, path: str, method: str, json: Any = None, **_more: Any) -> Any:
        self.sent.append((f"{method} {path}", json))
        known = max((start for start in self.answers if f"{method} {path}".startswith(start)), key=len)
        status, content = self.answers[known]
        return SimpleNamespace(status_code=status, json=lambda: content, content="x", reason="refused")

    def get_endpoint_data(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def connect_as(self, **scope: str) -> StandIn:
        self.tokens += 1
        if not self.system:
            raise Unauthorized("no role in the system")
        assert scope["system_scope"] == "all"
        return self


def limits(**more: Any) -> tuple[LimitsCloud, StandIn]:
    connection = StandIn(**more)
    return LimitsCloud(cast(Connection, connection)), connection


def test_limits_of_resource_classes_are_read() -> None:
    cloud, connection = limits()
    present = cloud.present()
    assert [(limit.resource_class, limit.limit, limit.ours) for limit in present.defaults] == [("CUSTOM_A", 1, True)]
    assert present.limits == (Limit(id="l1", resource_class="CUSTOM_A", limit=4, project="p1"),)
    assert present.complete
    assert [line for line, _ in connection.sent if "limits?" in line] == [
        "GET /registered_limits?service_id=nova&region_id=one",
        "GET /limits?service_id=nova&region_id=one",
    ]


def test_a_token_of_the_system_is_asked_for_once() -> None:
    cloud, connection = limits()
    assert cloud.find("CUSTOM_A", None) is not None
    cloud.present()
    assert cloud.find("CUSTOM_A", "p1") is not None
    assert connection.tokens == 1


def test_one_limit_is_found_by_one_request() -> None:
    cloud, connection = limits()
    default, of_project = cloud.find("CUSTOM_A", None), cloud.find("CUSTOM_A", "p1")
    assert default == Limit(id="r1", resource_class="CUSTOM_A", limit=1, description="GPUs: a [gpustack]")
    assert of_project == Limit(id="l1", resource_class="CUSTOM_A", limit=4, project="p1")
    where = "service_id=nova&region_id=one&resource_name=class%3ACUSTOM_A"
    assert [line for line, _ in connection.sent if "resource_name" in line] == [
        f"GET /registered_limits?{where}",
        f"GET /limits?{where}&project_id=p1",
    ]


@pytest.mark.parametrize("reads", ["find", "present"])
def test_each_reading_asks_for_a_token_of_the_system(reads: str) -> None:
    cloud, connection = limits()
    cloud.find("CUSTOM_A", "p1") if reads == "find" else cloud.present()
    assert connection.tokens == 1


def test_the_region_of_keystone_counts_more_than_that_of_the_cloud() -> None:
    cloud, connection = limits()
    connection.config = SimpleNamespace(get_region_name=lambda service=None: "two" if service == "identity" else "one")
    cloud.present()
    assert [line for line, _ in connection.sent if "region_id=two" in line]


def test_a_token_of_the_system_is_tried_before_it_is_used() -> None:
    """Keystone issues it only with the first request."""
    cloud, _ = limits(
        refusal=Unauthorized("no role in the system"),
        answers={"GET /limits": (200, {"limits": [{**LIMIT, "project_id": "own"}]})},
    )
    assert not cloud.present().complete


@pytest.mark.parametrize(("project", "complete"), [("p1", True), ("own", False)])
def test_without_a_token_of_the_system_limits_may_be_missing(project: str, complete: bool) -> None:
    """Limits of another project show that Keystone lists all of them."""
    cloud, _ = limits(system=False, answers={"GET /limits": (200, {"limits": [{**LIMIT, "project_id": project}]})})
    assert cloud.present().complete is complete


@pytest.mark.parametrize(
    ("region", "answers", "message"),
    [
        ("one", {"GET /services": (200, {"services": []})}, "Keystone has no service of type compute"),
        ("one", {"GET /services": (200, {"services": [{"id": "a"}, {"id": "b"}]})}, "2 services of type compute"),
        ("three", {}, "no public endpoint in the region three; its regions: one, two"),
        (None, {}, r"no public endpoint in the region \(not set\)"),
        ("one", {"GET /endpoints": (200, {"endpoints": []})}, "its regions: none"),
    ],
)
def test_nova_must_be_in_the_catalog(region: str | None, answers: dict[str, Any], message: str) -> None:
    cloud, _ = limits(region=region, answers=answers)
    with pytest.raises(CloudError, match=message):
        cloud.present()


def test_users_without_rights_are_refused() -> None:
    cloud, _ = limits(answers={"GET /services": (403, {"error": {"message": "not you"}})})
    with pytest.raises(Refused, match="HTTP 403, not you") as raised:
        cloud.present()
    assert "role admin" in str(raised.value)


def test_own_limits_need_no_rights() -> None:
    cloud, connection = limits(answers={"GET /services": (403, {}), "GET /endpoints": (403, {})})
    present, project = cloud.own()
    assert (project.name, present.used) == ("research", {"p1": {"CUSTOM_A": 2}})
    assert [limit.limit for limit in (*present.defaults, *present.limits)] == [1, 4]
    assert not [line for line, _ in connection.sent if re.search("services|endpoints", line)]


@pytest.mark.parametrize(("region", "listed"), [("one", 1), ("two", 0), (None, 2)])
def test_own_limits_are_those_of_the_region(region: str | None, listed: int) -> None:
    """Nova reads neither those of other regions nor those without a region."""
    entry = {"resource_name": "class:CUSTOM_B", "region_id": "one"}
    default = {**entry, "id": "r", "default_limit": 1}
    limit = {**entry, "id": "l", "resource_limit": 2, "project_id": "p1"}
    anywhere = {"region_id": None, "id": "x"}
    answers = {
        "GET /registered_limits": (200, {"registered_limits": [SERVERS, default, default | anywhere]}),
        "GET /limits": (200, {"limits": [limit, limit | anywhere]}),
    }
    cloud, _ = limits(region=region, answers=answers)
    present, _ = cloud.own()
    assert (len(present.defaults), len(present.limits)) == (listed, listed)
    assert {limit.resource_class for limit in (*present.defaults, *present.limits)} <= {"CUSTOM_B"}


def test_nova_in_one_region_needs_no_name_of_it() -> None:
    cloud, connection = limits(region=None, answers={"GET /endpoints": (200, {"endpoints": [ENDPOINT]})})
    cloud.present()
    assert [line for line, _ in connection.sent if "region_id=one" in line]


def test_requests_that_write() -> None:
    cloud, connection = limits(answers={"POST": (201, {}), "PATCH": (200, {}), "DELETE": (404, {})})
    cloud.create("CUSTOM_A", None, 1, "text")
    cloud.create("CUSTOM_A", "p1", 2, "text")
    default, of_project = (
        Limit(id="r1", resource_class="A", limit=1),
        Limit(id="l1", resource_class="A", limit=1, project="p1"),
    )
    cloud.change(default, 5)
    cloud.change(of_project, 6)
    cloud.delete(of_project)
    writes = [(line, body) for line, body in connection.sent if not line.startswith("GET")]
    entry = {
        "service_id": "nova",
        "region_id": "one",
        "resource_name": "class:CUSTOM_A",
        "description": "text",
    }
    assert writes == [
        ("POST /registered_limits", {"registered_limits": [{**entry, "default_limit": 1}]}),
        ("POST /limits", {"limits": [{**entry, "project_id": "p1", "resource_limit": 2}]}),
        ("PATCH /registered_limits/r1", {"registered_limit": {"default_limit": 5}}),
        ("PATCH /limits/l1", {"limit": {"resource_limit": 6}}),
        ("DELETE /limits/l1", None),
    ]
