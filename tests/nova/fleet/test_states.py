"""GPUs out of service, maintenance, hands and operators in random order, on real Nova: out of service means that."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from openstack.compute.v2.server import Server

from gpustack.cli import gpu_outage
from gpustack.cloud.closed import MAINTENANCE, UNSTATED, Reasons, gpu_reason, reasons_of, service_of
from gpustack.cloud.session import limited
from gpustack.fleet import cards
from gpustack.operate.doctor.cloud import out_of_service
from gpustack.operate.gpu_service import look, plan
from gpustack.prepare.drain.model import World as Hosts
from gpustack.prepare.drain.recorded import RecordedCloud
from gpustack.prepare.drain.restore import plan_resume
from gpustack.spec.load import load_spec
from support.by_hand import replace_provider, switch_cell
from support.clouds import NAMED, running
from support.cloudworld import Ran, World
from support.fleet_runs import listed, run
from support.outage_runs import FIRST, SECOND, Outage

STEPS = int(os.environ.get("GPUSTACK_SERVICE_STEPS", "10"))
"""Steps of each machine; ``make states`` takes many, in all clouds."""
NIGHTLY = "GPUSTACK_SERVICE_STEPS" in os.environ
MACHINES = int(os.environ.get("GPUSTACK_SERVICE_MACHINES", "1"))
WAYS = ("schedule", "report", "off")
ALL = [pytest.param((release, way), id=f"{release}-{way}") for release in NAMED if release != "yoga" for way in WAYS]
GPU = st.sampled_from([FIRST, SECOND])
SERVICE = st.sampled_from(["", "", "--disable-service", "--no-disable-service"])
OPERATOR = st.sampled_from(["ann", "bob"])
BY_HAND = "memory test; (Bob)"


class Service(RuleBasedStateMachine):
    """The model: which GPUs are out of service, which reasons the host has, and which gaps the last output named."""

    world: World
    make: Callable[[], Outage]
    way: str

    def __init__(self) -> None:
        super().__init__()
        self.desk = self.make()
        self.host = self.desk.host
        self.out: dict[str, str] = {}
        """The operator who took each GPU out of service."""
        self.excluded: set[str] = set()
        """The GPUs that the spec excludes."""
        self.installed: set[str] = set()
        """The GPUs that device_spec of nova-compute excludes."""
        self.reasons: set[str] = set()
        self.hand = ""
        self.gaps: set[str] = set()
        self.guests: list[tuple[Server, list[str]]] = []
        """The instances with the addresses of their GPUs."""

    def gpu(self, operator: str, action: str, address: str, *more: str) -> str:
        with mock.patch.dict(os.environ, {"XDG_STATE_HOME": str(self.desk.directory / operator)}):
            ran = self.desk.gpu(action, address, *more, "--yes")
        assert ran.code in (0, 3), (action, address, more, str(ran))
        return ran.out + ran.err

    def maintenance(self) -> RecordedCloud:
        return RecordedCloud(self.world.api, lambda text: None)

    # -- operators ----------------------------------------------------------------------------------------------

    @rule(
        address=GPU, operator=OPERATOR, service=st.sampled_from(["", "", "--disable-service", "--no-disable-service"])
    )
    def disable(self, address: str, operator: str, service: str) -> None:
        output = self.gpu(operator, "disable", address, *filter(None, [service]))
        new = address not in self.out
        self.out.setdefault(address, operator)
        key, certain = gpu_reason(address), self.way == "schedule"
        if address in self.installed and all(address not in used for _, used in self.guests):
            if service != "--disable-service":
                self.reasons.discard(key)
        elif service == "--disable-service" or (service == "" and not certain):
            self.reasons.add(key)
        elif service == "--no-disable-service" and certain:
            self.reasons.discard(key)
        assert new or address in self.out
        self.gaps.discard(address)
        if "GPU451" in output:
            self.gaps.add(address)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), operator=OPERATOR)
    def enable(self, data: st.DataObject, operator: str) -> None:
        address = data.draw(st.sampled_from(sorted(self.out)))
        if address in self.excluded:
            self.excluded.discard(address)
            self.install()
        other = operator != self.out[address]
        output = self.gpu(operator, "enable", address, *(["--take-over"] if other else []))
        self.reasons.discard(gpu_reason(address))
        del self.out[address]
        self.gaps.discard(address)
        if self.reasons:
            assert "host stays closed: " in output

    @rule()
    def exclude(self) -> None:
        self.excluded = set(self.out)
        self.install()

    def install(self) -> None:
        """Install the device_spec of the spec."""
        entries = ", ".join(f'{{host: {self.host}, address: "{gpu}", reason: x}}' for gpu in sorted(self.excluded))
        self.desk.write(f"out_of_service: [{entries}]" if entries else "")
        if self.excluded != {FIRST, SECOND}:  # device_spec would be empty
            self.desk.restart()
            self.installed = set(self.excluded)

    @rule()
    def restart(self) -> None:
        self.world.nova.control.restart_compute(self.host)
        self.world.nova.control.periodic(self.host)

    @precondition(lambda self: MAINTENANCE not in self.reasons)
    @rule()
    def begin_maintenance(self) -> None:
        self.maintenance().close(self.host, "kernel arguments")
        self.reasons.add(MAINTENANCE)

    @precondition(lambda self: MAINTENANCE in self.reasons)
    @rule()
    def end_maintenance(self) -> None:
        self.maintenance().reopen(self.host)
        self.reasons.discard(MAINTENANCE)

    @precondition(lambda self: not self.hand)
    @rule(text=st.sampled_from(["", BY_HAND]))
    def by_hand(self, text: str) -> None:
        """Somebody closes the host, or adds a text to the reasons that it has."""
        service = service_of(self.world.api, self.host)
        present = reasons_of(service)
        if present and not text:
            return
        written = Reasons(own=present.own, other=text).to_text() if present else text
        self.put(disabled=True, reason=written)
        self.hand = text or UNSTATED

    def put(self, *, disabled: bool, reason: str = "") -> None:
        """Change the service as ``openstack compute service set`` does."""
        body = {"status": "disabled" if disabled else "enabled", **({"disabled_reason": reason} if reason else {})}
        path = f"/os-services/{service_of(self.world.api, self.host).id}"
        assert self.world.api.compute.put(path, json=body, microversion="2.53").ok

    @precondition(lambda self: self.hand)
    @rule()
    def hand_ends(self) -> None:
        present = reasons_of(service_of(self.world.api, self.host))
        self.put(disabled=bool(present.own), reason=Reasons(own=present.own).to_text() if present.own else "")
        self.hand = ""

    # -- instances ----------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.guests) < 2)
    @rule()
    def boot(self) -> None:
        server = self.world.boot(self.host)
        got = self.world.nova.control.hostdevs(server.id).get(self.host, []) if server.status == "ACTIVE" else []
        assert not set(got) & (self.out.keys() - self.gaps), "it got a GPU that is out of service"
        if got:
            assert not self.reasons, "it got a GPU of a closed host"
            self.guests.append((server, got))
        else:
            self.world.drop(server)

    @precondition(lambda self: self.guests)
    @rule()
    def delete(self) -> None:
        self.world.drop(self.guests.pop()[0])
        self.world.nova.control.periodic(self.host)

    @invariant()
    def the_host_is_closed_exactly_while_a_reason_is_left(self) -> None:
        present = reasons_of(service_of(self.world.api, self.host))
        assert present.own.keys() == self.reasons
        assert present.other == self.hand

    def teardown(self) -> None:
        self.world.tidy()


@dataclass(frozen=True)
class Place:
    """A cloud without hosts, and a directory."""

    world: World
    release: str
    way: str
    directory: Path
    numbers: Iterator[int]

    def desk(self) -> Outage:
        """The operator's desk for a new host."""
        directory = self.directory / str(next(self.numbers))
        directory.mkdir()
        (host,) = self.world.hosts(1)
        # Only the databases show each GPU if Placement has none.
        sources = ("--config-file", str(self.world.nova.nova_conf)) if self.way == "off" else ()
        return Outage(self.world, host, self.release, directory, report=self.way == "report", sources=sources)


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    release, way = request.param
    directory = tmp_path_factory.mktemp(way)
    with running(release, way == "schedule", None, directory, report=way == "report") as world:
        limited(world.api)  # as each connection of gpustack: a write ends the sharing of reads
        yield Place(world, release, way, directory, iter(range(10**6)))


@pytest.fixture
def desk(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outage]:
    """A desk for a host with two GPUs, without records of earlier tests."""
    made = place.desk()
    monkeypatch.setenv("XDG_STATE_HOME", str(made.directory / "state"))
    yield made
    place.world.tidy()


EVERY = pytest.mark.parametrize("place", ALL if NIGHTLY else ALL[1:2], indirect=True)
STATES = pytest.mark.skipif(not NIGHTLY, reason="make states")


def service(desk: Outage) -> tuple[str, str]:
    """Status and reason of nova-compute."""
    (found,) = desk.world.api.compute.services(host=desk.host, binary="nova-compute")
    return found.status, found.disabled_reason or ""


def hostdevs(desk: Outage, server: Server) -> list[str]:
    if server.status != "ACTIVE":
        return []
    return desk.world.nova.control.hostdevs(server.id).get(desk.host, [])


def carried_out(ran: Ran) -> str:
    assert ran.code == 0, ran
    return ran.out + ran.err


# --- each row of the table: one cause that broke the promise ---------------------------------------------------------


@STATES
@EVERY
def test_row_1_a_second_gpu_does_not_come_back_with_the_first(desk: Outage) -> None:
    for address in (FIRST, SECOND):
        carried_out(desk.gpu("disable", address, "--yes", "--disable-service"))
    text = carried_out(desk.gpu("enable", FIRST, "--yes"))
    assert f"host stays closed: GPU {SECOND} out of service (fatal AER errors)" in text
    assert service(desk)[0] == "disabled"
    assert SECOND not in hostdevs(desk, desk.world.boot(desk.host))
    assert "host stays closed" not in carried_out(desk.gpu("enable", SECOND, "--yes"))
    assert service(desk)[0] == "enabled"


@STATES
@EVERY
def test_rows_1_and_6_the_end_of_maintenance_leaves_a_gpu_out_and_names_it(desk: Outage) -> None:
    maintenance = RecordedCloud(desk.world.api, lambda text: None)
    for before in (True, False):
        if before:
            maintenance.close(desk.host, "kernel arguments")
        carried_out(desk.gpu("disable", FIRST, "--yes", "--disable-service"))
        if not before:
            maintenance.close(desk.host, "kernel arguments")
        found = service_of(desk.world.api, desk.host)
        resumed = plan_resume(desk.host, Hosts(service=found), alive=True)
        assert resumed.notes == (f"host stays closed: GPU {FIRST} out of service (fatal AER errors)",)
        maintenance.reopen(desk.host)
        assert service(desk) == ("disabled", "gpustack: GPU 81:00.0 (fatal AER errors)")
        carried_out(desk.gpu("enable", FIRST, "--yes"))
        assert service(desk)[0] == "enabled"


@STATES
@EVERY
def test_row_2_a_burn_in_by_hand_is_not_released(desk: Outage, place: Place) -> None:
    if place.way == "off":
        pytest.skip("no reservations without PCI in Placement")
    placed = desk.world.api.placement
    (provider,) = placed.resource_providers(name=f"{desk.host}_{FIRST}")
    path = f"/resource_providers/{provider.id}/inventories"
    held = placed.get(path, microversion="1.31").json()
    for inventory in held["inventories"].values():
        inventory["reserved"] = inventory["total"]
    assert placed.put(path, json=held, microversion="1.31").ok
    for action in ("disable", "enable"):
        text = carried_out(desk.gpu(action, FIRST, "--yes"))
    assert "GPU452" in text
    (kept,) = placed.get(path, microversion="1.31").json()["inventories"].values()
    assert kept["reserved"] == kept["total"]
    carried_out(desk.gpu("enable", FIRST, "--yes", "--take-over"))
    (kept,) = placed.get(path, microversion="1.31").json()["inventories"].values()
    assert kept["reserved"] == 0


@EVERY
def test_row_3_a_gpu_in_use_goes_to_nobody_when_its_instance_ends(desk: Outage, place: Place) -> None:
    server = desk.world.boot(desk.host)
    (used,) = hostdevs(desk, server)
    text = carried_out(desk.gpu("disable", used, "--yes"))
    assert ("GPU450" in text) == (place.way != "schedule")
    desk.world.drop(server)
    desk.world.nova.control.periodic(desk.host)
    for _ in range(2):  # the other GPU, if the host is open
        assert used not in hostdevs(desk, desk.world.boot(desk.host))


@STATES
@EVERY
def test_row_4_both_protections_if_nothing_shows_how_nova_schedules(desk: Outage, place: Place) -> None:
    spec = desk.directory / "without.yaml"
    spec.write_text(desk.spec.read_text(encoding="utf-8").partition("nova:")[0], encoding="utf-8")
    carried_out(desk.gpu("disable", FIRST, "--yes", "--spec", str(spec)))
    assert service(desk)[0] == "disabled"
    found = listed(desk.world)[0]
    if place.way != "off":
        assert {gpu["address"]: gpu["reserved"] for gpu in found if gpu["host"] == desk.host}[FIRST]
    assert hostdevs(desk, desk.world.boot(desk.host)) == []


@STATES
@EVERY
def test_row_5_an_ordinary_host_stays_open(desk: Outage) -> None:
    (ordinary,) = desk.world.hosts(1, ())
    files = ("--spec", str(desk.spec), "--snapshot", str(desk.directory / "hosts.json"))
    for host, address, known in ((ordinary, FIRST, desk.host), (desk.host, "0000:99:00.0", FIRST)):
        ran = run(desk.world.nova.clouds_yaml, "disable", host, address, "--reason", "x", *files, "--yes")
        assert (ran.code, known in ran.err) == (2, True), ran
    assert {found.status for found in desk.world.api.compute.services(host=ordinary)} == {"enabled"}


@STATES
@EVERY
def test_a_host_that_only_placement_has_is_explained(desk: Outage, place: Place) -> None:
    """Such as the rest of a host that somebody removed: nothing starts there, so nothing has to be closed."""
    if place.way == "off":
        pytest.skip("Placement has no devices")
    placed = desk.world.api.placement
    root = placed.create_resource_provider(name=f"ghost-{place.release}-{place.way}")
    child = placed.create_resource_provider(name=f"{root.name}_{FIRST}", parent_provider_uuid=root.id)
    (real,) = placed.resource_providers(name=f"{desk.host}_{FIRST}")
    for number, part in enumerate(("inventories", "traits")):
        of_real = placed.get(f"/resource_providers/{real.id}/{part}", microversion="1.31").json()
        body = {**of_real, "resource_provider_generation": number}
        assert placed.put(f"/resource_providers/{child.id}/{part}", json=body, microversion="1.31").ok
    ran = run(
        desk.world.nova.clouds_yaml, "disable", root.name, FIRST, "--reason", "x", "--spec", str(desk.spec), "--yes"
    )
    assert (ran.code, "only Placement has its GPUs: no instance starts there" in ran.err) == (2, True), ran
    for provider in (child, root):
        placed.delete_resource_provider(provider)


def one_slot(patch: pytest.MonkeyPatch) -> None:
    """The end of one reason opens the host."""
    patch.setattr(Reasons, "minus", lambda self, reason: Reasons())


def any_reservation(patch: pytest.MonkeyPatch) -> None:
    """A GPU that comes back is released, whoever reserved it."""
    real = plan.enable
    patch.setattr(gpu_outage, "enable", lambda seen, **_: real(seen, take_over=True))


def in_use_is_safe(patch: pytest.MonkeyPatch) -> None:
    """Nothing is done for a GPU in use."""

    def disable(seen: plan.Seen, *arguments: Any, close: bool | None = None) -> plan.OutagePlan:
        return real(seen, *arguments, close=False if seen.in_use else close)

    real = plan.disable
    patch.setattr(gpu_outage, "disable", disable)


def placement_is_assumed(patch: pytest.MonkeyPatch) -> None:
    """Without section ``nova``, Nova schedules by Placement's devices."""
    patch.setattr(cards, "by_devices", lambda known, spec: spec.nova is None)


def any_target(patch: pytest.MonkeyPatch) -> None:
    """Host and address are not checked."""
    real = look.look
    patch.setattr(gpu_outage, "look", lambda *arguments, **_: real(*arguments, force=True))


ROWS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[..., None]]] = [
    (one_slot, test_row_1_a_second_gpu_does_not_come_back_with_the_first),
    (one_slot, test_rows_1_and_6_the_end_of_maintenance_leaves_a_gpu_out_and_names_it),
    (any_reservation, test_row_2_a_burn_in_by_hand_is_not_released),
    (in_use_is_safe, test_row_3_a_gpu_in_use_goes_to_nobody_when_its_instance_ends),
    (placement_is_assumed, test_row_4_both_protections_if_nothing_shows_how_nova_schedules),
    (any_target, test_row_5_an_ordinary_host_stays_open),
]


@STATES
@pytest.mark.parametrize(("mutant", "row"), ROWS)
@pytest.mark.parametrize("place", [of for of in ALL if str(of.id).endswith("report")], indirect=True)
def test_each_row_fails_without_its_protection(
    desk: Outage,
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    mutant: Callable[[pytest.MonkeyPatch], None],
    row: Callable[..., None],
) -> None:
    """With the cause of 0.1.0, each row fails: the tests above can."""
    mutant(monkeypatch)
    arguments = {"desk": desk, "place": place}
    with pytest.raises(AssertionError):
        row(**{name: value for name, value in arguments.items() if name in inspect.signature(row).parameters})


# --- what happens to hosts and services -------------------------------------------------------------------------------


@STATES
@EVERY
def test_a_host_that_is_down_is_closed_when_it_returns(desk: Outage) -> None:
    desk.world.die(desk.host)
    carried_out(desk.gpu("disable", FIRST, "--yes", "--disable-service"))
    desk.world.back(desk.host)
    assert hostdevs(desk, desk.world.boot(desk.host)) == []
    carried_out(desk.gpu("enable", FIRST, "--yes"))
    assert service(desk)[0] == "enabled"


@STATES
@EVERY
def test_a_host_in_a_disabled_cell_stays_closed_when_the_cell_returns(desk: Outage) -> None:
    """Nova lists and changes its services as before; only the scheduler leaves out the hosts of the cell."""
    entry = f'out_of_service: [{{host: {desk.host}, address: "{FIRST}", reason: x}}]'
    desk.write(entry)
    switch_cell(desk.world, "cell1", disabled=True)
    try:
        assert hostdevs(desk, desk.world.boot(desk.host)) == []
        assert reported(desk)  # the cell may return at any time
        carried_out(desk.gpu("disable", FIRST, "--yes", "--disable-service"))
        assert not reported(desk)
    finally:
        switch_cell(desk.world, "cell1", disabled=False)
    assert hostdevs(desk, desk.world.boot(desk.host)) == []
    desk.write("")
    carried_out(desk.gpu("enable", FIRST, "--yes"))
    assert service(desk)[0] == "enabled"
    assert len(hostdevs(desk, desk.world.boot(desk.host))) == 1


@EVERY
def test_a_new_service_and_a_new_provider_are_reported(desk: Outage, place: Place) -> None:
    """Both forget what gpustack wrote: the next list, the next round of watch, and doctor report the GPU."""
    desk.write(f'out_of_service: [{{host: {desk.host}, address: "{FIRST}", reason: x}}]')
    carried_out(desk.gpu("disable", FIRST, "--yes"))
    assert not reported(desk)
    if place.way != "off":
        replace_provider(desk.world, desk.host, FIRST)
        assert reported(desk) == (place.way == "schedule")  # otherwise, the host is closed
        carried_out(desk.gpu("disable", FIRST, "--yes"))
        assert not reported(desk)
    (found,) = desk.world.api.compute.services(host=desk.host, binary="nova-compute")
    desk.world.api.compute.delete(f"/os-services/{found.id}", microversion="2.53")
    desk.world.nova.control.restart_compute(desk.host)
    desk.world.nova.control.periodic(desk.host)
    assert service(desk)[0] == "enabled"
    assert reported(desk)
    carried_out(desk.gpu("disable", FIRST, "--yes"))
    assert FIRST not in hostdevs(desk, desk.world.boot(desk.host))


def reported(desk: Outage) -> bool:
    """Whether ``gpu list``, ``gpu watch`` and ``doctor`` report that new instances can get the first GPU."""
    spec, clouds = ("--spec", str(desk.spec)), desk.world.nova.clouds_yaml
    texts = [run(clouds, "list", *spec, *desk.sources).err]
    page = str(desk.directory / "x.prom")
    texts.append(run(clouds, "watch", "--textfile", page, "--once", *spec, *desk.sources).err)
    (check,) = out_of_service(desk.world.api, load_spec(desk.spec), list(map(Path, desk.sources[1:])))
    texts.append(f"GPU760 {check.seen}" if "(GPU760)" in check.seen else check.seen)
    (found,) = {f"GPU760 {desk.host} {FIRST}:" in text for text in texts}
    return found


@EVERY
def test_out_of_service_means_out_of_service(place: Place) -> None:
    machine = type("Service", (Service,), {"world": place.world, "make": staticmethod(place.desk), "way": place.way})
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=MACHINES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=checks,
            phases=[Phase.generate],
            database=None,
            derandomize=not NIGHTLY,
        ),
    )
