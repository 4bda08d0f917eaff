"""Which GPUs are listed for which options."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpustack.fleet.index import Answers
from gpustack.fleet.join import join
from gpustack.fleet.model import Fleet, State
from gpustack.fleet.placement import Consumer
from gpustack.fleet.select import Criteria, selected
from support.fleet_answers import device, server


@pytest.fixture
def fleet() -> Fleet:
    devices = (device("gpu1", 0x81, used=1), device("gpu1", 0x82), device("gpu2", 0x81, capacity=0))
    consumer = Consumer(uuid="vm1", project="p1", user="u1", devices={"gpu1-81": 1})
    names = {"projects": {"p1": "research"}, "users": {"u1": "ada"}}
    return join(Answers(devices=devices, servers=(server("vm1", "gpu1"),), consumers={"vm1": consumer}, **names))


def test_a_name_like_an_id_is_not_selected() -> None:
    """A tenant names an instance like that of another project; the domain's administrator, a project."""
    ids = ("0123456789abcdef0123456789abcdef", "01234567-89ab-cdef-0123-456789abcdef")
    attacker = Consumer(uuid="vm1", project="p1", user="u1", devices={"gpu1-81": 1})
    instance = replace(server("vm1", "gpu1"), name=ids[1])
    answers = Answers(
        devices=(device("gpu1", 0x81, used=1),),
        servers=(instance,),
        consumers={"vm1": attacker},
        projects={"p1": ids[0]},
        users={"u1": ids[0]},
    )
    named = (Criteria(projects=[ids[0]]), Criteria(users=[ids[0]]), Criteria(servers=[ids[1]]))
    assert not [gpu for criteria in named for gpu in selected(join(answers), criteria).gpus]
    assert len(selected(join(answers), Criteria(servers=["vm1"])).gpus) == 1


@pytest.mark.parametrize(
    ("criteria", "expected"),
    [
        (Criteria(), 3),
        (Criteria(hosts=["GPU1"]), 2),
        (Criteria(hosts=["gpu"]), 0),
        (Criteria(models=["k4200"]), 3),
        (Criteria(models=["a100", "tesla"]), 0),
        (Criteria(states=[State.FREE, State.RESERVED]), 2),
        (Criteria(projects=["research"]), 1),
        (Criteria(projects=["p1"]), 1),
        (Criteria(users=["ada"]), 1),
        (Criteria(users=["u2"]), 0),
        (Criteria(users=[""]), 0),
        (Criteria(servers=["VM1"]), 1),
        (Criteria(hosts=["gpu2"], servers=["vm1"]), 0),
    ],
)
def test_criteria(fleet: Fleet, criteria: Criteria, expected: int) -> None:
    assert len(selected(fleet, criteria).gpus) == expected


def test_a_holder_with_an_unknown_user_fits_no_user() -> None:
    consumer = Consumer(uuid="vm1", project="p1", user="", devices={"gpu1-81": 1})
    instance = server("vm1", "gpu1", user="")
    fleet = join(Answers(devices=(device("gpu1", 0x81, used=1),), servers=(instance,), consumers={"vm1": consumer}))
    assert len(selected(fleet, Criteria(servers=["vm1"])).gpus) == 1
    assert selected(fleet, Criteria(users=[""])).gpus == ()


def test_findings_are_those_of_the_listed_gpus() -> None:
    devices = (device("gpu1", 0x81, used=1), device("gpu2", 0x81, used=1))
    strangers = {"gpu1-81": frozenset({"a"}), "gpu2-81": frozenset({"b"})}
    fleet = join(Answers(devices=devices, servers=(), consumers={}, strangers=strangers))
    assert len(fleet.findings) == 2
    assert [finding.place for finding in selected(fleet, Criteria(hosts=["gpu2"])).findings] == ["gpu2 0000:81:00.0"]


def test_free_gpus_are_unknown_without_addresses() -> None:
    fleet = join(Answers(servers=(server("vm1", "gpu1"),)))
    assert selected(fleet, Criteria(states=[State.ALLOCATED])).complete
    assert not selected(fleet, Criteria(states=[State.FREE])).complete
