"""Devices that are taken and that Placement gives away: what is told, and what is not. Asking many providers."""

from __future__ import annotations

import dataclasses
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from gpustack.base.errors import CloudError
from gpustack.cloud import placement
from gpustack.cloud.placement import Provider
from gpustack.repair.rules import _unallocated as unallocated
from gpustack.repair.verdict import Verdict
from support import neighbourhood

GPU, NODE, CLASS = "gpu-provider", "node", "CUSTOM_PCI_10DE_11B4"


def statuses(case: dict[str, Any], allocations: dict[str, int], **more: Any) -> list[str]:
    """The statuses of :func:`judged`, and of which instance where there are more."""
    several = len(case["owners"]) > 1 if "owners" in case else False
    return [
        f"{verdict.owner} {verdict.status.value}" if several else verdict.status.value
        for verdict in judged(case, allocations, **more)
    ]


def judged(
    case: dict[str, Any],
    allocations: dict[str, int],
    *,
    of_node: bool,
    total: int = 1,
    reserved: int = 0,
    before: dict[str, int] | None = None,
    root: str = NODE,
    **moved: str,
) -> list[Verdict]:
    """The verdicts on the provider of the case's first row.

    :param total: how much there is of the provider: one for each virtual function.
    :param before: the allocations when the providers were listed, if they were others.
    :param root: the compute node of which the provider is.
    """
    view = neighbourhood.view(case)
    held = allocations if before is None else before
    provider = Provider(uuid=GPU, name="", root=root, address=view.rows[0].address, held=held)

    def ask(path: str, _method: str, **_more: object) -> Any:
        if path.endswith("/inventories"):
            inventories = {CLASS: {"total": total, "reserved": reserved}}
            return answer({"inventories": inventories, "resource_provider_generation": 1})
        of_guest = {GPU: {"resources": {CLASS: amount}}} if (amount := allocations.get(path.split("/")[2])) else {}
        return answer({"allocations": {**({NODE: {"resources": {"VCPU": 1}}} if of_node else {}), **of_guest}})

    def answer(content: object) -> SimpleNamespace:
        return SimpleNamespace(status_code=200, json=lambda: content)

    cloud: Any = SimpleNamespace(placement=SimpleNamespace(request=ask))
    return list(unallocated.judge(view, neighbourhood.clock(case), provider, moved, cloud))


TAKEN = {"rows": [{"status": "allocated", "owner": "vm"}], "owners": {"vm": {"host": "gpu1"}}}
UNDATED = {
    "rows": [{"status": "allocated", "owner": "vm", "age": None, "created": None}],
    "owners": {"vm": {"host": "gpu1", "age": None}},
}
UP = {"service": {"seen": 5}}


@pytest.mark.parametrize(
    ("case", "of_node", "expected"),
    [
        ({**TAKEN, **UP}, False, ["report"]),  # nova-compute adds to what is there, and there is nothing
        (TAKEN, False, ["report"]),
        ({**TAKEN, **UP}, True, ["report"]),  # it should have been added long ago
        ({**TAKEN, **UP, "owners": {"vm": {"host": "gpu1", "age": 400}}}, True, ["heals"]),
        ({**UP, **UNDATED}, True, ["heals"]),  # nobody knows since when
        (TAKEN, True, ["heals"]),  # when nova-compute starts again
        ({**TAKEN, **UP, "owners": {"vm": {"host": "gpu1", "age": 5}}}, False, ["protected"]),
        ({**TAKEN, **UP, "rows": [{"status": "allocated", "owner": "vm", "age": 5}]}, False, ["protected"]),
        ({**TAKEN, **UP, "owners": {"vm": {"host": "gpu1", "task": "rebooting"}}}, False, ["protected"]),
        ({**TAKEN, **UP, "owners": {"vm": {"host": "gpu2"}}}, False, []),  # another class tells of it
        ({**UP, "rows": [{"status": "available"}]}, False, []),
    ],
)
def test_plan_reports(case: dict[str, Any], of_node: bool, expected: list[str]) -> None:
    assert statuses(case, {}, of_node=of_node) == expected


def test_what_gives_nothing_away() -> None:
    case = {**TAKEN, **UP}
    assert statuses(case, {"vm": 1}, of_node=True) == []
    assert statuses(case, {}, of_node=False, reserved=1) == []  # used once, and reserved since
    assert statuses(case, {"other": 1}, of_node=False) == []  # somebody else's: class Q tells of that
    assert statuses(case, {"move": 1}, of_node=False, move="vm") == []  # the instance's own migration has it
    assert statuses(case, {"vm": 1}, of_node=True, before={}) == []  # allocated meanwhile


def test_advice_depends_on_the_allocations_of_the_instance() -> None:
    case = {**TAKEN, **UP}
    heal = "nova-manage placement heal_allocations --instance vm"
    (none,) = judged(case, {}, of_node=False)
    assert none.advice == f"run {heal}; the next periodic adds the device"
    (elsewhere,) = judged(case, {}, of_node=True, root="another")
    assert elsewhere.because == none.because
    assert elsewhere.advice.startswith(f"it has allocations of {NODE} alone: find out why. {heal} does nothing while")
    (overdue,) = judged(case, {}, of_node=True)
    assert "plan again in some minutes" in overdue.advice


BOTH = {
    "rows": [{"status": "allocated", "owner": "vm", "request": request} for request in ("r1", "r2")],
    "owners": {"vm": {"host": "gpu1", "wants": ["r1", "r2"]}},
}


def candidates(case: dict[str, Any], held: int, **aliases: str | None) -> dict[str, list[int]]:
    """The rows of the first device that Placement has not allocated, by owner; Placement is not asked for them.

    :param aliases: the alias of each request; None for a Neutron port.
    """
    view = neighbourhood.view(case)
    owner = view.owners["vm"]
    requests = [
        dataclasses.replace(request, alias_name=aliases.get(request.request_id or "", "gpu"))
        for request in owner.requests or ()
    ]
    view = dataclasses.replace(view, owners={"vm": dataclasses.replace(owner, requests=tuple(requests))})
    provider = Provider(uuid=GPU, name="", root=NODE, address=view.rows[0].address, held={"vm": held} if held else {})
    return {uuid: [row.id for row in rows] for uuid, rows in unallocated.candidates(view, provider).items()}


def test_only_rows_of_the_device_and_of_no_port_need_an_allocation() -> None:
    assert candidates(BOTH, 0) == {"vm": [1]}
    assert candidates(BOTH, 1) == {}
    assert candidates(BOTH, 0, r1=None) == {}
    assert candidates(BOTH, 0, r2=None) == {"vm": [1]}
    deleted = {**BOTH, "rows": [{**BOTH["rows"][0], "deleted": 1}]}  # type: ignore[dict-item]
    assert candidates(deleted, 0) == {}


def card(*owners: str | None) -> dict[str, Any]:
    """A physical function, blocked since some of its virtual functions are taken, by these guests of its host."""
    guests = {name for name in owners if name}
    virtual = [
        {"address": f"0000:81:00.{number}", "parent": "0000:81:00.0", "type": "type-VF", "status": "available"}
        | ({"status": "allocated", "owner": owner} if owner else {})
        for number, owner in enumerate(owners, start=1)
    ]
    above = {"address": "0000:81:00.0", "type": "type-PF", "status": "unavailable"}
    return {**UP, "rows": [above, *virtual], "owners": {name: {"host": "gpu1"} for name in guests}}


@pytest.mark.parametrize(
    ("owners", "allocations", "expected"),
    [
        (("vm", None, None), {"vm": 1}, []),
        (("vm", None, None), {}, ["report"]),
        (("vm", "vm", None), {"vm": 2}, []),
        (("vm", "vm", None), {"vm": 1}, ["report"]),  # one of its two is given away
        (("one", "two", None), {"one": 1, "two": 1}, []),
        (("one", "two", None), {"one": 1}, ["two report"]),
        (("one", "two", "two"), {"one": 1, "two": 1}, ["two report"]),
        (
            ("one", "two", "two"),
            {"one": 2, "two": 1},
            [],
        ),  # nothing is left to give away: what one has too much is told
        (("vm", "vm", "vm"), {}, ["report"]),
    ],
)
def test_functions_of_one_card(
    owners: tuple[str | None, ...], allocations: dict[str, int], expected: list[str]
) -> None:
    """They are one provider, with as much of its resource class as there are functions."""
    assert statuses(card(*owners), allocations, of_node=False, total=3) == expected


class Many:
    """Placement with many devices, which answers slowly.

    :param together: so many requests at a time must come before it answers the first one.
    """

    def __init__(self, count: int, together: int = 1, **status: int) -> None:
        self.count, self.together, self.status = count, together, status
        self.busy = self.most = 0
        self.changed = threading.Condition()
        self.placement = self

    def request(self, path: str, _method: str, **_more: object) -> SimpleNamespace:
        if path == "/resource_providers":
            listed = [
                {"uuid": f"p{number}", "name": f"gpu1_0000:{number:02X}:00.0", "root_provider_uuid": NODE}
                for number in range(self.count)
            ]
            return SimpleNamespace(status_code=200, json=lambda: {"resource_providers": listed})
        with self.changed:
            self.busy += 1
            self.most = max(self.most, self.busy)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.most >= self.together, 120)
        time.sleep(0.01)
        with self.changed:
            self.busy -= 1
        status = self.status.get(path.split("/")[2], 200)
        content = {"allocations": {"vm": {"resources": {CLASS: 1}}}}
        return SimpleNamespace(status_code=status, json=lambda: content, reason="refused")


def test_many_providers_are_asked_at_a_time_and_not_too_many() -> None:
    cloud: Any = Many(40, together=2)
    assert [provider.uuid for provider in placement.providers(cloud)] == [f"p{number}" for number in range(40)]
    assert 2 <= cloud.most <= 8


def test_providers_that_are_gone_or_that_fail() -> None:
    cloud: Any = Many(4, p1=404, p2=503)
    providers = {provider.uuid: provider for provider in placement.providers(cloud)}
    assert providers.keys() == {"p0", "p2", "p3"}
    assert providers["p2"].unread is not None
    assert "503" in providers["p2"].unread
    with pytest.raises(CloudError, match="401"):
        list(placement.providers(Many(40, p7=401)))  # type: ignore[arg-type]
