"""Sign in with clouds.yaml and OS_* variables; send requests: errors, pages, older clouds. A stand-in answers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from keystoneauth1 import exceptions as failures
from novaclient import exceptions as of_novaclient
from openstack.exceptions import ServiceDisabledException

from gpustack.base.errors import CloudError
from gpustack.cli.app import main
from gpustack.cloud import session
from gpustack.cloud.microversions import FLAVOR_SPECS, SILENT_CELLS, UUIDS, VALIDATED_SPECS
from gpustack.cloud.session import (
    Refused,
    Unanswered,
    each,
    find,
    get,
    listing,
    newest,
    request,
    translated_errors,
)
from support.fleet_cloud import Answer, StandIn
from support.slow_services import services

pytestmark = pytest.mark.filterwarnings("ignore:Support for InfluxDB")
NOBODY = "http://127.0.0.1:9/v3"


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("OS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "auth_url"),
        ({"OS_AUTH_URL": NOBODY}, "check the user, the password"),
        ({"OS_AUTH_URL": NOBODY, "OS_USERNAME": "me"}, "check the user, the password"),
        (
            {"OS_AUTH_URL": NOBODY, "OS_USERNAME": "me", "OS_PASSWORD": "geheim"},
            "refused\n  → check that",
        ),
        (
            {"OS_AUTH_URL": NOBODY.replace("http", "https"), "OS_PASSWORD": "geheim", "OS_CACERT": "/nonexistent.pem"},
            "cacert",
        ),
        ({"OS_AUTH_URL": "nowhere", "OS_USERNAME": "me", "OS_PASSWORD": "geheim"}, "check auth_url"),
    ],
)
def test_errors_are_printed_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variables: dict[str, str], message: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["flavor", "list"]) == 21
    output = capsys.readouterr().err
    assert message in output
    assert "geheim" not in output
    assert "fault of gpustack" not in output


@pytest.mark.parametrize("text", ["clouds: {mine: 5}\n", "clouds: [\n", "clouds: [mine]\n", "5\n"])
def test_a_clouds_yaml_of_another_shape(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    Path("clouds.yaml").write_text(text)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", "clouds.yaml")
    assert main(["flavor", "list", "--os-cloud", "mine"]) == 21
    output = capsys.readouterr().err
    assert "clouds.yaml" in output
    assert "fault of gpustack" not in output


SHOW = "import gpustack.cloud.session as api; print(api.connect('prod').config.config['auth'])"


@pytest.mark.parametrize("explicit", [False, True])
def test_a_clouds_yaml_of_the_current_directory_counts_only_if_named(tmp_path: Path, explicit: bool) -> None:
    """A commit in a spec repository has the user's password sent elsewhere."""
    config, current = tmp_path / ".config/openstack", tmp_path / "specs"
    config.mkdir(parents=True)
    current.mkdir()
    user = "{username: me, project_name: p, user_domain_name: d, project_domain_name: d, "
    (config / "clouds.yaml").write_text(f"clouds: {{prod: {{auth: {user} auth_url: 'http://own.invalid'}}}}}}")
    (config / "secure.yaml").write_text("clouds: {prod: {auth: {password: geheim}}}")
    (current / "clouds.yaml").write_text(f"clouds: {{prod: {{auth: {user} auth_url: 'http://other.invalid'}}}}}}")
    (current / "secure.yaml").write_text("clouds: {prod: {auth: {auth_url: 'http://other.invalid'}}}")
    variables = {**os.environ, "HOME": str(tmp_path), **({"OS_CLIENT_CONFIG_FILE": "clouds.yaml"} if explicit else {})}
    variables.pop("XDG_CONFIG_HOME", None)
    process = subprocess.run(
        [sys.executable, "-P", "-c", SHOW], cwd=current, env=variables, capture_output=True, text=True, check=True
    )
    assert "geheim" in process.stdout
    assert ("other.invalid" in process.stdout) is explicit


PATH = "compute /things"


def test_a_refusal_has_reason_status_and_remedy() -> None:
    cloud = StandIn({PATH: (403, {"forbidden": {"message": "not you"}})})
    with pytest.raises(Refused, match="can't list things: HTTP 403, not you") as caught:
        get(cloud.connection, "compute", "/things", "list things")
    assert (caught.value.status, "role admin" in str(caught.value.remedy)) == (403, True)
    cloud.config = SimpleNamespace(auth={"system_scope": "all"})
    with pytest.raises(Refused) as caught:
        get(cloud.connection, "compute", "/things", "list things")
    assert "set project_name (OS_PROJECT_NAME) instead of system_scope" in str(caught.value.remedy)
    cloud = StandIn({"placement /things": (409, {"errors": [{"detail": "no room.\n\n Not here.  "}]})})
    with pytest.raises(Refused, match=r"HTTP 409, no room\. Not here\.$"):  # as Placement breaks the lines
        get(cloud.connection, "placement", "/things", "list things")


@pytest.mark.parametrize("answer", [(200, []), (200, "<html>"), (200, "5")])
def test_an_answer_that_is_no_object_is_an_error(answer: Answer) -> None:
    with pytest.raises(CloudError, match="can't list things"):
        get(StandIn({PATH: answer}).connection, "compute", "/things", "list things")


def test_a_missing_resource_is_none() -> None:
    assert find(StandIn().connection, "compute", "/things/1", "read a thing") is None
    with pytest.raises(Refused):
        find(StandIn({PATH: (500, {})}).connection, "compute", "/things/1", "read a thing")


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (failures.ConnectFailure("nobody there"), Unanswered, "can't list things: nobody there"),
        (failures.Unauthorized("who"), Refused, "can't list things, because the sign-in failed: who"),
        (failures.EndpointNotFound("no endpoint"), CloudError, "can't list things: no endpoint"),
        (
            ServiceDisabledException(
                "Service 'x' is disabled. The service is not present in the service catalog: gone"
            ),
            CloudError,
            "^can't list things: gone\n",
        ),
        (failures.NotFound("bad token"), CloudError, "can't list things: bad token.*\n.*the password or the token"),
        (OSError("no route"), CloudError, "can't list things: no route"),
        (of_novaclient.Conflict(409, "it is locked"), Refused, "can't list things: HTTP 409, it is locked"),
    ],
)
def test_errors_of_every_client_are_translated(error: Exception, kind: type[CloudError], message: str) -> None:
    with pytest.raises(kind, match=message), translated_errors("list things"):
        raise error


def test_a_path_of_another_resource_is_never_sent() -> None:
    cloud = StandIn()
    for path in ("/things/../others", "/things/.", "/..?a=b"):
        with pytest.raises(CloudError, match="no part of an address"):
            request(cloud.connection, "compute", "DELETE", path, "delete a thing")
    assert not cloud.requests


@pytest.mark.parametrize("more", [{"things_links": [{"rel": "next"}]}, {"next": "/v2/things?marker=1"}])
def test_pages_of_nova_and_glance_are_read_to_the_end(more: dict[str, Any]) -> None:
    cloud = StandIn({f"{PATH}?": (200, {"things": [{"id": "1"}], **more})})
    cloud.answers[f"{PATH}?&limit={session.PAGE}&marker=1"] = (200, {"things": [{"id": "2"}]})
    assert [thing["id"] for thing in listing(cloud.connection, "compute", "/things?", "things", "list things")] == [
        "1",
        "2",
    ]
    assert len(cloud.requests) == 2


def test_an_older_cloud_is_named_with_the_release_it_lacks() -> None:
    cloud = StandIn({PATH: (406, {})}).connection
    with pytest.raises(Refused, match=r"2\.53 \(Pike\) is needed"):
        get(cloud, "compute", "/things", "list things", version=UUIDS)
    with pytest.raises(Refused, match=r"ends at microversion 2\.96; 9\.1 \(Zz\) is needed"):
        newest(cloud, UUIDS._replace(number="9.1", release="Zz"), doing="list things")


def test_the_newest_microversion_that_the_cloud_has_is_used() -> None:
    cloud = StandIn().connection
    assert newest(cloud, FLAVOR_SPECS, SILENT_CELLS, VALIDATED_SPECS, doing="x") == VALIDATED_SPECS
    assert newest(cloud, FLAVOR_SPECS, UUIDS._replace(number="2.9"), SILENT_CELLS, doing="x") == SILENT_CELLS
    too_new = UUIDS._replace(number="2.960")
    assert newest(cloud, FLAVOR_SPECS, SILENT_CELLS, too_new, doing="x") == SILENT_CELLS
    assert newest(cloud, FLAVOR_SPECS, too_new, doing="x") == FLAVOR_SPECS


def test_answers_come_in_the_order_of_the_questions_and_an_error_ends_them() -> None:
    done: list[tuple[int, int]] = []
    assert list(each(lambda number: number * 2, range(20), lambda *step: done.append(step))) == list(range(0, 40, 2))
    assert done[-1] == (20, 20)

    def fails(number: int) -> int:
        if number == 3:
            raise Unanswered("no answer")
        return number

    with pytest.raises(Unanswered):
        list(each(fails, range(1000)))


def test_no_further_question_is_asked_after_an_error() -> None:
    asked: list[int] = []

    def fails(number: int) -> int:
        asked.append(number)
        if number == 0:
            raise Unanswered("no answer")
        time.sleep(0.01)
        return number

    with pytest.raises(Unanswered):
        list(each(fails, range(5000)))
    assert len(asked) < 1000


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (400, None),
        (401, "check the user, the password and the project"),
        (402, None),
        (404, None),
        (499, None),
        (500, "see the log of nova-api"),
        (503, "see the log of nova-api"),
    ],
)
def test_the_remedy_of_a_refusal_depends_on_its_status(status: int, remedy: str | None) -> None:
    cloud = StandIn({PATH: (status, {"fault": {"message": "no"}})}).connection
    with pytest.raises(Refused, match=f"HTTP {status}, no") as caught:
        get(cloud, "compute", "/things", "list things")
    assert (caught.value.status, caught.value.remedy) == (status, remedy)


def test_an_answer_below_400_is_no_refusal() -> None:
    assert get(StandIn({PATH: (399, {"a": 1})}).connection, "compute", "/things", "list things") == {"a": 1}


@pytest.mark.parametrize(("method", "remedy"), [("GET", session._READING), ("DELETE", session._WRITING)])
def test_a_missing_right_to_read_or_to_write_is_named(method: str, remedy: str) -> None:
    cloud = StandIn({PATH: (403, {}), "compute DELETE /things": (403, {})}).connection
    with pytest.raises(Refused) as caught:
        request(cloud, "compute", method, "/things", "x")
    assert caught.value.remedy == remedy


def test_a_status_of_versions_means_an_old_cloud_only_for_a_request_with_a_version() -> None:
    cloud = StandIn({PATH: (406, {"x": {"message": "no such form"}})}).connection
    with pytest.raises(Refused, match="HTTP 406, no such form"):
        request(cloud, "compute", "GET", "/things", "list things")
    cloud = StandIn({PATH: (409, {"x": {"message": "busy"}})}).connection
    with pytest.raises(Refused, match="HTTP 409, busy"):
        request(cloud, "compute", "GET", "/things", "list things", version=UUIDS)


def test_the_version_of_a_cloud_that_is_needed_exactly_is_enough() -> None:
    cloud = StandIn(newest=UUIDS.parts).connection
    assert newest(cloud, UUIDS, doing="x") == UUIDS
    assert newest(cloud, FLAVOR_SPECS._replace(number="2.1"), UUIDS, doing="x") == UUIDS


@dataclass
class _Proxy:
    """A proxy of openstacksdk that notes how it is asked."""

    asked: list[dict[str, Any]]

    def request(self, path: str, method: str, **options: Any) -> Any:
        self.asked.append({"path": path, "method": method, **options})
        return SimpleNamespace(status_code=204, url=f"http://cloud/v2{path}", json=dict)


def test_a_request_is_sent_once_with_its_version_and_body() -> None:
    asked: list[dict[str, Any]] = []
    cloud: Any = SimpleNamespace(compute=_Proxy(asked))
    request(cloud, "compute", "PUT", "/things", "x", body={}, version=UUIDS, headers={"A": "b"})
    request(cloud, "compute", "GET", "/things", "x")
    once = {"connect_retries": 0, "status_code_retries": 0, "raise_exc": False}
    assert asked == [
        {"path": "/things", "method": "PUT", "json": {}, "headers": {"A": "b"}, "microversion": "2.53", **once},
        {"path": "/things", "method": "GET", "microversion": None, **once},
    ]


def test_a_refusal_names_the_endpoint() -> None:
    answer = SimpleNamespace(status_code=500, reason="no", url="http://cloud/v2/things?limit=1", json=dict)
    cloud: Any = SimpleNamespace(compute=SimpleNamespace(request=lambda *arguments, **options: answer))
    with pytest.raises(Refused) as caught:
        request(cloud, "compute", "GET", "/things?limit=1", "list things")
    assert caught.value.where == "http://cloud/v2"


@pytest.mark.parametrize(
    ("own", "clouds", "expected"),
    [
        (None, {"mine": {"api_timeout": 7}}, 7.0),
        (5.0, {"mine": {"api_timeout": 7}}, 5.0),
        (None, {"other": {"api_timeout": 7}}, None),
        (None, {"mine": None}, None),
        (None, None, None),
    ],
)
def test_the_time_limit_of_clouds_yaml_counts(own: float | None, clouds: Any, expected: float | None) -> None:
    files = SimpleNamespace(cloud_config={"clouds": clouds}) if clouds is not None else None
    sender = requests.Session()
    made: Any = SimpleNamespace(
        config=SimpleNamespace(name="mine", _openstack_config=files, config={}),
        session=SimpleNamespace(timeout=own, session=sender, auth=None),
    )
    assert session.limited(made).session.timeout == expected
    sender.close()


def test_an_error_names_the_clouds_and_where_they_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("openstack.config.loader.CONFIG_FILES", [f"{tmp_path}/clouds.yaml"])
    monkeypatch.setattr("openstack.config.loader.CONFIG_SEARCH_PATH", ["/nowhere", str(tmp_path)])
    assert main(["flavor", "list", "--os-cloud", "theirs"]) == 21
    assert f"clouds found: none (searched: {tmp_path})" in capsys.readouterr().err
    (tmp_path / "clouds.yaml").write_text("clouds: {mine: {auth: {auth_url: 'http://x'}}, b: {}}\n")
    assert main(["flavor", "list", "--os-cloud", "theirs"]) == 21
    assert f"clouds found: b, mine (searched: {tmp_path})" in capsys.readouterr().err
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", "more.yaml")
    assert main(["flavor", "list", "--os-cloud", "theirs"]) == 21
    assert f"searched: more.yaml, {tmp_path})" in capsys.readouterr().err
    (tmp_path / "clouds.yaml").write_text("5\n")
    assert main(["flavor", "list", "--os-cloud", "theirs"]) == 21
    assert "clouds.yaml can't be read" in capsys.readouterr().err


def test_connections_are_closed_with_their_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    made: Any = SimpleNamespace(
        close=lambda: closed.append("connection"),
        session=SimpleNamespace(session=SimpleNamespace(close=lambda: closed.append("sockets"))),
    )
    monkeypatch.setattr(session, "connect", lambda *chosen: made)
    assert session.shared("mine") is session.shared("mine")
    session.disconnect()
    assert closed == ["connection", "sockets"]
    assert session._SHARED == {}


def test_a_record_has_no_password_of_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "sign_in", lambda connection: None)
    auth = {"auth_url": "https://me:geh%40im@also@keystone:5000/v3"}
    connection: Any = SimpleNamespace(config=SimpleNamespace(auth=auth, get_region_name=lambda: "RegionOne"))
    place = session.place_of(connection)
    assert place == {"auth_url": "https://keystone:5000/v3", "region": "RegionOne", "user": "", "project": ""}


def in_regions(monkeypatch: pytest.MonkeyPatch, configured: str, *regions: str) -> Any:
    access = session.Access(user="me", project="ops", roles=frozenset(), regions=frozenset(regions))
    monkeypatch.setattr(session, "sign_in", lambda connection: access)
    return SimpleNamespace(config=SimpleNamespace(auth={}, get_region_name=lambda: configured))


@pytest.mark.parametrize(("configured", "others"), [("One", ()), ("", ()), ("One", ("Two",))])
def test_a_record_has_the_region_also_if_it_is_not_configured(
    monkeypatch: pytest.MonkeyPatch, configured: str, others: tuple[str, ...]
) -> None:
    assert session.place_of(in_regions(monkeypatch, configured, "One", *others))["region"] == "One"


def test_nothing_is_changed_in_a_region_that_nobody_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CloudError, match=r"several regions \(One, Two\), and none of them is chosen"):
        session.place_of(in_regions(monkeypatch, "", "One", "Two"))


def test_a_region_is_chosen_of_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "clouds: {mine: {regions: [One, Two], auth: {auth_url: http://127.0.0.1:1, username: u, password: p}}}"
    (tmp_path / "regions.yaml").write_text(text)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "regions.yaml"))
    names = [session.connect("mine", region).config.get_region_name() for region in (None, "Two")]
    assert names == ["One", "Two"]


@pytest.mark.filterwarnings("ignore:The 'service_type' parameter")  # openstacksdk's own call
@pytest.mark.parametrize("region", ["", "Two"])
def test_nothing_is_read_in_a_region_that_nobody_chose(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], region: str
) -> None:
    with services(answers={"/flavors/detail": {"flavors": []}}, regions=("One", "Two")) as offered:
        for name, value in {**offered.variables, "OS_REGION_NAME": region}.items():
            monkeypatch.setenv(name, value)
        code = main(["flavor", "list"])
    refused = "several regions (One, Two), and none of them is chosen; nothing was read or changed\n  → set region_name"
    assert (code, refused in capsys.readouterr().err) == ((0, False) if region else (CloudError.exit_code, True))
    assert offered.requests["compute"] == bool(region)


@pytest.mark.filterwarnings("ignore:The 'service_type' parameter")  # openstacksdk's own call
@pytest.mark.parametrize("service", ["compute", "placement", "identity", "image"])
def test_no_service_is_asked_without_a_region(monkeypatch: pytest.MonkeyPatch, service: str) -> None:
    with services(regions=("One", "Two")) as offered:
        for name, value in offered.variables.items():
            monkeypatch.setenv(name, value)
        connection = session.connect()
        for _ in range(2):
            with pytest.raises(CloudError, match="none of them is chosen"):
                get(connection, service, "/things", "list things")
    assert offered.requests.total() == 1  # the token
