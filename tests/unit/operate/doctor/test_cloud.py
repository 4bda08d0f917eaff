"""The cloud: not configured, not reached, or a stand-in. A real one is asked in tests/nova/embedded/test_cloud.py."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gpustack.base.errors import CloudError
from gpustack.cloud.session import Access
from gpustack.operate.doctor import cloud
from gpustack.operate.doctor.check import Check, State
from gpustack.spec.model import Spec
from support.cellfile import CellFile, nova_conf
from support.fleet_answers import device
from support.fleet_cloud import StandIn, servers, with_devices

pytestmark = pytest.mark.filterwarnings("ignore:Support for InfluxDB")
CLOUDS = """
clouds:
  lab: {auth: {auth_url: "http://127.0.0.1:9/v3", username: me, password: geheim, project_name: p}}
"""
ANOTHER = '  prod: {auth: {auth_url: "http://127.0.0.1:9/v3"}}\n'
MODELS = {"a": {"match": {"vendor": "10de", "product": "11b4"}}}
ENTRY = {"host": "gpu1", "address": "0000:81:00.0", "reason": "no reset"}
SPEC = Spec.model_validate({"version": 1, "models": MODELS, "hosts": {"gpu1": ["a"]}, "out_of_service": [ENTRY]})


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OS_")]:
        monkeypatch.delenv(name)


def checks(name: str | None = None) -> list[Check]:
    return list(cloud.checks(name))


def test_no_configuration_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "missing.yaml"))
    assert [check.state for check in checks()] == [State.NOT_CONFIGURED]


def test_several_clouds_are_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "clouds.yaml").write_text(CLOUDS + ANOTHER)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    (check,) = checks()
    assert (check.state, check.seen) == (State.NOT_CONFIGURED, "clouds.yaml has lab, prod")
    (_, unchecked) = cloud.checks(None, SPEC)
    assert (unchecked.state, unchecked.name) == (State.NOT_CONFIGURED, "Out of service")
    assert unchecked.seen.startswith("1 in the spec")


@pytest.mark.parametrize("content", ["clouds: {a: \n", "clouds: [lab]\n"])
def test_a_damaged_clouds_yaml_is_not_called_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str
) -> None:
    """openstacksdk skips what it can't parse."""
    (tmp_path / "clouds.yaml").write_text(content)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    (check,) = checks()
    assert (check.state, check.remedy, check.exit_code) == (State.ERROR, "correct the file", 21)
    assert check.seen.startswith("clouds.yaml can't be used: ")


def test_a_cloud_without_a_password_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "clouds.yaml").write_text("clouds: {lab: {auth: {auth_url: 'http://127.0.0.1:1/v3'}}}\n")
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    (check,) = checks()
    assert (check.state, check.seen) == (State.ERROR, "can't sign in: password is a required attribute")


def test_the_only_cloud_is_signed_in_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "clouds.yaml").write_text(CLOUDS)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    (check,) = checks()
    assert (check.state, check.exit_code) == (State.ERROR, 21)
    assert "geheim" not in f"{check.seen}{check.remedy}"
    assert checks("missing")[0].exit_code == 21


class Services:
    """The two reads of :class:`ServiceCloud`; novaclient has no stand-in of its own."""

    refusal = ""

    def __init__(self, connection: object) -> None:
        self.connection = connection

    def services(self) -> tuple[str, ...]:
        return ("gpu1", "gpu2")

    def unconfirmed(self) -> None:
        if self.refusal:
            raise CloudError(self.refusal)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A cloud with one free GPU, to which an administrator signs in."""
    made = with_devices([device("gpu1", 0x81)])
    made.answers["compute /servers/detail?all_tenants=1"] = servers()
    monkeypatch.setattr(cloud.cloudapi, "shared", lambda _name: made)
    monkeypatch.setattr(cloud, "ServiceCloud", Services)
    signed_in(monkeypatch, Access(user="ops", project="p", roles=frozenset({"reader", "admin"})))
    return made


def signed_in(monkeypatch: pytest.MonkeyPatch, access: Access | None) -> None:
    monkeypatch.setattr(cloud.cloudapi, "sign_in", lambda _connection: access)


def test_everything_that_commands_read_is_read(stand_in: StandIn) -> None:
    assert [(check.name, check.state.value, check.seen) for check in checks("lab")] == [
        ("Cloud", "ok", "signed in as ops of project p; roles: admin, reader"),
        ("Nova flavors", "ok", "0 readable"),
        ("Nova services", "ok", "2 nova-compute; instances of all projects readable"),
        ("Placement", "ok", "readable resource providers: 1"),
    ]


def test_a_right_that_is_missing_keeps_no_other_from_being_checked(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Services, "refusal", "not permitted")
    refused = (403, {"forbidden": {"message": "policy"}})
    stand_in.answers["compute /flavors/detail"] = refused
    stand_in.answers["placement /resource_providers"] = refused
    results = checks("lab")
    assert [(check.name, check.state.value, check.exit_code) for check in results] == [
        ("Cloud", "ok", 0),
        *((name, "error", 21) for name in ("Nova flavors", "Nova services", "Placement")),
    ]
    assert results[2].seen == "not permitted"


@pytest.mark.parametrize(
    ("access", "state", "seen"),
    [
        (None, State.OK, "a token that is configured; its roles are unknown"),
        (
            Access(user="me", project="", roles=frozenset({"admin"})),
            State.OK,
            "signed in as me of project none; roles: admin",
        ),
        (
            Access(user="me", project="p", roles=frozenset({"member"})),
            State.WARNING,
            "signed in as me of project p without the role admin; roles: member",
        ),
        (
            Access(user="me", project="p", roles=frozenset()),
            State.WARNING,
            "signed in as me of project p without the role admin; roles: none",
        ),
    ],
)
def test_roles_are_named(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, access: Access | None, state: State, seen: str
) -> None:
    signed_in(monkeypatch, access)
    check = checks("lab")[0]
    assert (check.state, check.seen, bool(check.remedy)) == (state, seen, state is State.WARNING)


@pytest.mark.parametrize(("variable", "value"), [("OS_CLOUD", "lab"), ("OS_AUTH_URL", "http://127.0.0.1:9/v3")])
def test_variables_name_the_cloud(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, value: str
) -> None:
    (tmp_path / "clouds.yaml").write_text(CLOUDS + ANOTHER)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    monkeypatch.setenv(variable, value)
    assert len(checks()) == 4


def test_gpus_out_of_service_are_looked_for(stand_in: StandIn) -> None:
    scheduled = Spec.model_validate({**SPEC.model_dump(), "nova": {"release": "2025.2", "placement": "schedule"}})

    def out(spec: Spec = scheduled) -> Check:
        return list(cloud.checks("lab", spec))[-1]

    offered = out()
    assert (offered.name, offered.state) == ("Out of service", State.WARNING)
    assert offered.seen.startswith("gpu1 0000:81:00.0: ")
    assert offered.seen.endswith(" (GPU760)")
    assert "gpu disable" in offered.remedy
    reserved = with_devices([device("gpu1", 0x81, capacity=0)])
    stand_in.answers |= reserved.answers
    assert (out().state, out().seen, out().remedy) == (State.OK, "1 in the spec; Nova offers none of them", "")
    stand_in.answers["compute /servers/detail?all_tenants=1"] = (403, {"forbidden": {"message": "policy"}})
    stand_in.answers["compute /servers/detail?&"] = servers()
    partial = out()
    assert (partial.state, partial.seen.startswith("unknown: ")) == (State.WARNING, True)
    assert partial.remedy == "gpustack gpu list --spec SPEC"
    without = SPEC.model_copy(update={"out_of_service": ()})
    assert out(without).name == "Placement"


def test_nova_conf_shows_how_nova_schedules(stand_in: StandIn, tmp_path: Path) -> None:
    """Its databases have the rows, and its scheduler may not look at Placement's devices."""
    cell = CellFile(f"sqlite:///{tmp_path}/cell.sqlite")
    cell.device(cell.host("gpu1", seen=1), "0000:81:00.0")
    conf = nova_conf(tmp_path, {"cell1": cell.url})
    stand_in.answers |= with_devices([replace(device("gpu1", 0x81, capacity=0), root="node-gpu1")]).answers
    for option, state in (("false", State.WARNING), ("true", State.OK)):
        text = conf.read_text(encoding="utf-8").partition("[filter_scheduler]")[0]
        conf.write_text(f"{text}[filter_scheduler]\npci_in_placement = {option}\n", encoding="utf-8")
        check = list(cloud.checks("lab", SPEC, [conf]))[-1]
        assert (check.name, check.state) == ("Out of service", state), check
