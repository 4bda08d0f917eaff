"""GPUs out of service, maintenance, hands and operators in random order, on real Nova: out of service means that."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from openstack.compute.v2.server import Server

from gpustack.cloud.closed import MAINTENANCE, UNSTATED, Reasons, gpu_reason, reasons_of, service_of
from gpustack.prepare.drain.recorded import RecordedCloud
from support.clouds import NAMED, running
from support.cloudworld import World
from support.outage_runs import FIRST, SECOND, Outage

STEPS = int(os.environ.get("GPUSTACK_SERVICE_STEPS", "10"))
"""Steps of each machine; ``make states`` takes many, in all clouds."""
MACHINES = int(os.environ.get("GPUSTACK_SERVICE_MACHINES", "1"))
WAYS = ("schedule", "report", "off")
ALL = [(release, way) for release in NAMED if release != "yoga" for way in WAYS]
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
        self.reasons: set[str] = set()
        self.hand = ""
        self.gaps: set[str] = set()
        self.guests: list[Server] = []

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
        if address in self.excluded:
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
            self.installed()
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
        self.installed()

    def installed(self) -> None:
        """Install the device_spec of the spec."""
        entries = ", ".join(f'{{host: {self.host}, address: "{gpu}", reason: x}}' for gpu in sorted(self.excluded))
        self.desk.write(f"out_of_service: [{entries}]" if entries else "")
        if self.excluded != {FIRST, SECOND}:  # device_spec would be empty
            self.desk.restart()

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
        (found,) = self.world.api.compute.services(host=self.host, binary="nova-compute")
        self.world.api.compute.disable_service(found, disabled_reason=written or None)
        self.hand = text or UNSTATED

    @precondition(lambda self: self.hand)
    @rule()
    def hand_ends(self) -> None:
        present = reasons_of(service_of(self.world.api, self.host))
        (found,) = self.world.api.compute.services(host=self.host, binary="nova-compute")
        if present.own:
            left = Reasons(own=present.own).to_text()
            self.world.api.compute.disable_service(found, disabled_reason=left)
        else:
            self.world.api.compute.enable_service(found)
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
            self.guests.append(server)
        else:
            self.world.drop(server)

    @precondition(lambda self: self.guests)
    @rule()
    def delete(self) -> None:
        self.world.drop(self.guests.pop())
        self.world.nova.control.periodic(self.host)

    @invariant()
    def the_host_is_closed_exactly_while_a_reason_is_left(self) -> None:
        present = reasons_of(service_of(self.world.api, self.host))
        assert present.own.keys() == self.reasons
        assert present.other == self.hand

    def teardown(self) -> None:
        self.world.tidy()


@pytest.mark.parametrize(("release", "way"), ALL if "GPUSTACK_SERVICE_STEPS" in os.environ else ALL[1:2])
def test_out_of_service_means_out_of_service(release: str, way: str, tmp_path: Path) -> None:
    with running(release, way == "schedule", None, tmp_path, report=way == "report") as world:
        numbers = iter(range(10**6))

        def make() -> Outage:
            directory = tmp_path / str(next(numbers))
            directory.mkdir()
            (host,) = world.hosts(1)
            return Outage(world, host, release, directory, report=way == "report")

        machine = type("Service", (Service,), {"world": world, "make": staticmethod(make), "way": way})
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
            ),
        )
