"""``gpustack gpu disable`` and ``enable``: confirmation, record, refusals. The cloud is a stand-in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpustack.cloud.session import NOBODY
from gpustack.operate.doctor.cloud import out_of_service
from gpustack.prepare.drain.recorded import RecordedCloud
from gpustack.spec.load import load_spec
from support.change_runs import PLACE, without_cloud
from support.fleet_answers import device
from support.fleet_cloud import StandIn, instance, servers, with_devices

INVENTORY = {
    "resource_provider_generation": 3,
    "inventories": {"CUSTOM_PCI_10DE_11B4": {"total": 1, "reserved": 0}},
}
DISABLE = ("gpu", "disable", "gpu1", "81:00.0", "--reason", "no reset")
SPEC = """\
version: 1
models: {a: {match: {vendor: "10de", product: "11b4"}}}
hosts: {gpu1: [a]}
"""


class NovaModel(StandIn):
    """Keeps what is written: the service of gpu1, and the inventories of its two GPUs."""

    def __init__(self, devices: list[Any], held: dict[str, dict[str, int]]) -> None:
        made = with_devices(devices, held)
        super().__init__(answers=made.answers)
        self.service = {"id": "s1", "host": "gpu1", "status": "enabled", "state": "up", "disabled_reason": None}
        self.services = [self.service]
        self.inventories = {f"gpu1-{bus}": dict(INVENTORY) for bus in ("81", "82")}
        self.refused: set[str] = set()

    def answer(self, service: str, path: str) -> Any:
        write = path.startswith("PUT ")
        body, at = self.written[-1] if write else None, path.removeprefix("PUT ")
        if write and service in self.refused:
            return 403, {"forbidden": {"message": "policy"}}
        if write and NOBODY in at:
            return 404, {}
        if at.startswith("/os-services/s1"):
            self.service |= {"disabled_reason": None, **body}
            return 200, {"service": self.service}
        if at.startswith("/os-services") and "host=gpu9" not in at:
            return 200, {"services": [of for of in self.services if f"host={of['host']}" in at or "host=" not in at]}
        provider = at.partition("/resource_providers/")[2].partition("/")[0]
        if provider in self.inventories and at.endswith("/inventories"):
            self.inventories[provider] = body or self.inventories[provider]
            return 200, self.inventories[provider]
        return super().answer(service, path)

    @property
    def reserved(self) -> list[int]:
        return [of["inventories"]["CUSTOM_PCI_10DE_11B4"]["reserved"] for of in self.inventories.values()]

    @property
    def changes(self) -> list[str]:
        return [line for line in self.requests if " PUT " in line and NOBODY not in line]


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> NovaModel:
    devices = [device("gpu1", 0x81, used=1), device("gpu1", 0x82)]
    model = NovaModel(devices, {"vm1": {"gpu1-81": 1}})
    model.answers["compute /servers/detail?all_tenants=1"] = servers(instance("vm1"))
    model.answers["compute /os-services?binary=nova-compute&host=gpu9"] = (200, {"services": []})
    without_cloud(monkeypatch, tmp_path / "state", model)
    return model


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "gpustack.yaml"
    path.write_text(f'{SPEC}nova: {{release: "2025.2", placement: schedule}}\n', encoding="utf-8")
    return path


def test_nothing_is_written_without_confirmation(cloud: NovaModel, gpustack: Any, spec: Path) -> None:
    assert gpustack(*DISABLE, "--dry-run", "--spec", spec).code == 0
    assert cloud.written == []
    ran = gpustack(*DISABLE, "--spec", spec)  # no terminal
    assert (ran.code, cloud.changes) == (2, [])
    assert "reserve gpu1 0000:81:00.0 in Placement: reserved CUSTOM_PCI_10DE_11B4 0 → 1" in ran.out
    assert "VM1 (vm1, ACTIVE) has the GPU (project p1, user u1)" in ran.err
    assert "after its instance ends: the reservation in Placement (gpustack)" in ran.out
    assert '  - {host: "gpu1", address: "0000:81:00.0", reason: "no reset"' in ran.out
    assert f"gpustack nova render {spec} gpu1 --snapshot=FILE --service compute" in ran.out
    assert "gpustack nova render SPEC gpu1" in gpustack(*DISABLE, "--dry-run").out


def test_both_protections_if_it_is_unknown_how_nova_schedules(cloud: NovaModel, gpustack: Any) -> None:
    ran = gpustack(*DISABLE, "--yes")
    assert ran.code == 0, ran
    assert cloud.service["disabled_reason"] == "gpustack: GPU 81:00.0 (no reset)"
    assert cloud.reserved == [1, 0]


def test_a_change_is_recorded_found_by_its_gpu_and_undone(cloud: NovaModel, gpustack: Any) -> None:
    assert gpustack(*DISABLE, "--yes").code == 0
    listed = json.loads(gpustack("history", "--object", "gpu1 0000:81:00.0", "-f", "json").out)
    assert [(run["Command"], run["Done"], run["State"]) for run in listed] == [("gpu disable", "2/2", "done")]
    assert gpustack("undo", "--yes").code == 0
    assert (cloud.service["status"], cloud.reserved) == ("enabled", [0, 0])


def test_an_undo_without_a_name_leaves_maintenance_alone(
    cloud: NovaModel, gpustack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpustack.cloud.server_actions.ServiceCloud.__init__", ServiceStandIn.__init__)
    monkeypatch.setattr("gpustack.prepare.drain.recorded.place_of", lambda connection: dict(PLACE))
    assert gpustack(*DISABLE, "--yes").code == 0
    maintenance = RecordedCloud(cloud.connection, lambda text: None)
    maintenance.close("gpu1", "kernel arguments")
    assert cloud.service["disabled_reason"] == "gpustack: maintenance (kernel arguments); GPU 81:00.0 (no reset)"
    maintenance.reopen("gpu1")
    listed = json.loads(gpustack("history", "--object", "gpu1", "-f", "json").out)
    assert [run["Command"] for run in listed] == ["host apply", "host apply", "gpu disable"]
    assert gpustack("undo", "--yes").code == 0
    assert (cloud.service["status"], cloud.reserved) == ("enabled", [0, 0])


class ServiceStandIn:
    """Signs in to no novaclient."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection


def test_a_second_gpu_keeps_the_host_closed(cloud: NovaModel, gpustack: Any) -> None:
    assert gpustack(*DISABLE, "--yes").code == 0
    assert gpustack("gpu", "disable", "gpu1", "82:00.0", "--reason", "ECC errors", "--yes").code == 0
    ran = gpustack("gpu", "enable", "gpu1", "81:00.0", "--yes")
    assert "host stays closed: GPU 0000:82:00.0 out of service (ECC errors)" in ran.out
    assert (ran.code, cloud.service["disabled_reason"]) == (0, "gpustack: GPU 82:00.0 (ECC errors)")
    assert gpustack("gpu", "enable", "gpu1", "82:00.0", "--yes").code == 0
    assert (cloud.service["status"], cloud.reserved) == ("enabled", [0, 0])


def test_a_reservation_of_somebody_else_is_released_only_on_request(cloud: NovaModel, gpustack: Any) -> None:
    cloud.inventories["gpu1-82"] = {
        **INVENTORY, "inventories": {"CUSTOM_PCI_10DE_11B4": {"total": 1, "reserved": 1}}
    }  # fmt: skip
    ran = gpustack("gpu", "enable", "gpu1", "82:00.0", "--yes")
    assert (ran.code, cloud.changes) == (0, [])
    assert "GPU452" in ran.err
    assert gpustack("gpu", "enable", "gpu1", "82:00.0", "--yes", "--take-over").code == 0
    assert cloud.reserved == [0, 0]


@pytest.mark.parametrize("service", ["compute", "placement"])
def test_without_a_right_nothing_is_written(cloud: NovaModel, gpustack: Any, service: str) -> None:
    cloud.refused.add(service)
    ran = gpustack(*DISABLE, "--yes")
    assert (ran.code, cloud.changes) == (21, [])
    assert "os_compute_api:os-services:update, and placement:resource_providers:inventories:update" in ran.err


def test_a_gap_is_a_warning_and_an_exit_code(cloud: NovaModel, gpustack: Any) -> None:
    ran = gpustack(*DISABLE, "--yes", "--no-disable-service", "--exit-code")
    assert ran.code == 3
    assert "GPU451" in ran.err
    assert cloud.service["status"] == "enabled"
    assert gpustack(*DISABLE, "--check", "--exit-code").code == 3  # the instance that has it stays


@pytest.mark.parametrize(
    ("options", "changes", "more"),
    [
        ((), 1, -1),  # the right; but the services are listed once in each look
        (("--disable-service",), 2, 1),  # both rights, and the service is read again after the write
    ],
)
def test_requests(
    cloud: NovaModel, gpustack: Any, spec: Path, options: tuple[str, ...], changes: int, more: int
) -> None:
    """Before the reasons were a set: ten for each of the two looks at the GPU, and one for each change."""
    before = 2 * 10 + changes
    for action in (DISABLE, ("gpu", "enable", "gpu1", "81:00.0")):
        cloud.requests.clear()
        ran = gpustack(*action, "--yes", "--spec", spec, *(options if action is DISABLE else ()))
        assert ran.code == 0, ran
        of_changes = changes  # each is read before it is made
        assert len(cloud.requests) - of_changes == before + more


def test_without_a_record_nothing_is_changed(cloud: NovaModel, gpustack: Any, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no directory", encoding="utf-8")
    ran = gpustack(*DISABLE, "--yes")
    assert (ran.code, cloud.changes) == (15, [])


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("Bob: Gerät prüfen 🔥; später | Bob", None),
        ("gpustack: Bob asks for patience", None),
        ("gpustack:maintenance", None),
        ("gpustack: maintenance GPU 82:00.0", None),
        ("gpustack: maintenance (x); and Bob | memory", "and Bob | memory"),
        ("x" * 215, None),
    ],
)
def test_the_text_of_others_stays_and_keeps_the_host_closed(
    cloud: NovaModel, gpustack: Any, text: str, written: str | None
) -> None:
    """Edited by hand, not ASCII, or an imitation of gpustack's text."""
    cloud.service |= {"status": "disabled", "disabled_reason": text}
    assert gpustack(*DISABLE, "--yes").code == 0
    now = str(cloud.service["disabled_reason"])
    assert now.startswith("gpustack: ")
    assert "GPU 81:00.0" in now
    assert now.endswith(f" | {written or text}")
    ran = gpustack("gpu", "enable", "gpu1", "81:00.0", "--yes")
    assert (ran.code, cloud.service["status"]) == (0, "disabled")
    assert f"reason of others: {written or text}" in ran.out
    if written is None:
        assert cloud.service["disabled_reason"] == text


def test_a_set_that_does_not_fit_is_an_error_before_the_first_write(cloud: NovaModel, gpustack: Any) -> None:
    cloud.service |= {"status": "disabled", "disabled_reason": "x" * 255}
    ran = gpustack(*DISABLE, "--yes")
    assert (ran.code, cloud.written) == (13, [])
    assert "do not fit in Nova's 255 characters" in ran.err
    assert "--disable-reason" in ran.err


def test_a_host_that_only_placement_has_is_explained(cloud: NovaModel, gpustack: Any) -> None:
    cloud.services = []
    ran = gpustack(*DISABLE, "--yes")
    assert (ran.code, cloud.written) == (2, [])
    assert "no nova-compute service on gpu1, only Placement has its GPUs: no instance starts there" in ran.err
    assert "out_of_service" in ran.err


def test_a_silent_cell_is_an_error_before_the_first_write(cloud: NovaModel, gpustack: Any) -> None:
    cloud.service |= {"status": "UNKNOWN"}
    ran = gpustack(*DISABLE, "--yes")
    assert (ran.code, cloud.written) == (21, [])
    assert "the cell of gpu1 does not answer" in ran.err


def test_a_host_that_is_down_is_closed_too(cloud: NovaModel, gpustack: Any) -> None:
    cloud.service |= {"state": "down"}
    assert gpustack(*DISABLE, "--yes").code == 0
    assert (cloud.service["status"], cloud.reserved) == ("disabled", [1, 0])


def test_an_ordinary_host_stays_open_if_nothing_lists_gpus(cloud: NovaModel, gpustack: Any) -> None:
    cloud.answers["placement /resource_providers"] = (200, {"resource_providers": []})
    ran = gpustack("gpu", "disable", "gpu1", "99:00.0", "--reason", "x", "--yes")
    assert (ran.code, cloud.written) == (2, [])
    assert "no source has a GPU 0000:99:00.0 on gpu1" in ran.err
    # The operator alone knows the GPU: nothing shows that Nova does not offer it.
    assert gpustack("gpu", "disable", "gpu1", "99:00.0", "--reason", "x", "--yes", "--force").code == 0
    assert cloud.service["status"] == "disabled"
    # Its reason was the only source; the host is open afterwards.
    ran = gpustack("gpu", "enable", "gpu1", "99:00.0", "--yes")
    assert (ran.code, cloud.service["status"]) == (0, "enabled"), ran.err


def test_force_proves_nothing_about_a_host_that_reports_no_devices(cloud: NovaModel, gpustack: Any) -> None:
    """Others report theirs, and nothing shows how Nova schedules."""
    cloud.services = [cloud.service, {**cloud.service, "id": "s3", "host": "gpu3"}]
    ran = gpustack("gpu", "disable", "gpu3", "81:00.0", "--reason", "x", "--check", "--force")
    assert "disable nova-compute of gpu3" in ran.out
    assert "Nova does not have the GPU" not in ran.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("gpu1", "0000:99:00.0"),
            "no source has a GPU 0000:99:00.0 on gpu1; known GPUs of this host: 0000:81:00.0",
        ),
        (("gpu9", "0000:81:00.0"), "Nova has no nova-compute service on gpu9"),
        (("gpu9", "0000:81:00.0"), "hosts with GPUs: gpu1"),
        (("gpu1", "81.0"), "is not a PCI address"),
        (("gpu1", "81:00.0", "--reason", "two\nlines"), "--reason must be one line"),
    ],
)
def test_a_wrong_name_is_no_gpu_out_of_service(
    cloud: NovaModel, gpustack: Any, arguments: tuple[str, ...], message: str
) -> None:
    ran = gpustack("gpu", "disable", "--reason", "no reset", *arguments)
    assert (ran.code, cloud.written) == (2, [])
    assert message in ran.err


def test_the_spec_decides_whether_a_reservation_helps(cloud: NovaModel, gpustack: Any, spec: Path) -> None:
    for placement, kinds in (("report", ["switch_service"]), ("schedule", ["set_inventory"])):
        spec.write_text(f'{SPEC}nova: {{release: "2025.2", placement: {placement}}}\n', encoding="utf-8")
        command = ("gpu", "disable", "gpu1", "82:00.0", "--reason", "x", "--spec", spec, "--dry-run", "-f", "json")
        ran = gpustack(*command)
        plan = json.loads(ran.out)
        assert [operation["kind"] for operation in plan["operations"]] == kinds


def test_a_gpu_that_the_spec_still_lists_does_not_come_back(cloud: NovaModel, gpustack: Any, tmp_path: Path) -> None:
    spec = tmp_path / "gpustack.yaml"
    entry = 'out_of_service: [{host: gpu1, address: "0000:82:00.0", reason: no reset}]\n'
    spec.write_text(f"{SPEC}{entry}", encoding="utf-8")
    ran = gpustack("gpu", "enable", "gpu1", "82:00.0", "--spec", spec, "--yes")
    assert (ran.code, cloud.written) == (13, [])
    assert "GPU759" in ran.err
    ran = gpustack("gpu", "list", "--spec", spec)
    assert "free: no reset" in ran.out
    assert "GPU760" in ran.err
    excluded = 'out_of_service: [{host: gpu1, address: "0000:99:00.0", reason: no reset}]\n'
    spec.write_text(f"{SPEC}{excluded}", encoding="utf-8")
    ran = gpustack("gpu", "disable", "gpu1", "99:00.0", "--reason", "x", "--spec", spec)
    assert (ran.code, "out of service: Nova does not have the GPU" in ran.out) == (0, True), ran


def test_a_partial_fleet_proves_nothing(cloud: NovaModel, gpustack: Any) -> None:
    """A GPU that a partial list lacks may be in service."""
    cloud.answers["compute /servers/detail?all_tenants=1"] = (403, {"forbidden": {"message": "no"}})
    cloud.answers["compute /servers/detail?&"] = servers()
    command = ("gpu", "disable", "gpu1", "99:00.0", "--reason", "x", "--dry-run")
    ran = gpustack(*command)
    assert (ran.code, "if you know that it has, add --force" in ran.err) == (23, True)
    ran = gpustack(*command, "--force")
    assert "unknown:" in ran.out
    assert "out of service: Nova" not in ran.out
    assert ran.code == 23


def test_the_list_has_every_reason_and_every_entry_that_nothing_enforces(
    cloud: NovaModel, gpustack: Any, spec: Path
) -> None:
    entries = ", ".join(f'{{host: gpu1, address: "0000:{bus}:00.0", reason: no reset}}' for bus in ("81", "82"))
    spec.write_text(f"{spec.read_text(encoding='utf-8')}out_of_service: [{entries}]\n", encoding="utf-8")
    ran = gpustack("gpu", "list", "--spec", spec)
    assert ran.err.count("GPU760 ") == 2  # one in use, one free
    ran = gpustack(*DISABLE, "--spec", spec, "--yes", "--disable-service")
    assert (ran.code, "GPU760" in ran.err) == (0, False)  # its remedy is this command
    ran = gpustack("gpu", "list", "--spec", spec)
    assert "GPU760" not in ran.err
    assert "host gpu1 is closed: GPU 0000:81:00.0 out of service (no reset)" in ran.err
    (check,) = out_of_service(cloud.connection, load_spec(spec))
    assert check.state.value == "ok"
    # The service is deleted and created again.
    cloud.service |= {"id": "s2", "status": "enabled", "disabled_reason": None}
    assert "GPU760" in gpustack("gpu", "list", "--spec", spec).err
    (check,) = out_of_service(cloud.connection, load_spec(spec))
    assert "gpu1 0000:81:00.0: the spec lists the GPU as out of service" in check.seen
    assert "(GPU760)" in check.seen
