"""Models, projects, fragments and findings of a report."""

from __future__ import annotations

from dataclasses import replace

from gpustack.base.findings import Code, Finding, Severity
from gpustack.fleet.index import Answers, Index
from gpustack.fleet.join import join
from gpustack.fleet.model import MDEV, Fleet, Gap, HostCount, Source, State
from gpustack.fleet.summary import host_counts
from gpustack.operate.report.hosts import TIMES
from gpustack.operate.report.tables import finding_rows, flavor_row, free_rows, idle, projects
from support.fleet_answers import server
from support.fleets import A100, fleet_of, gpu


def count(host: str, free: int | None, total: int | None = 8) -> HostCount:
    used = 0 if total is None or free is None else total - free
    return HostCount(host=host, model=A100, total=total, free=free, used=used, per_gpu=True)


def test_fragments_are_counted_on_each_host() -> None:
    (row,), unknown = free_rows(Fleet(counts=(count("gpu1", 3), count("gpu2", 5), count("gpu3", 0))))
    assert (row["free"], row["most"], row["fitting"], unknown) == (8, 5, {1: 8, 2: 3, 4: 1, 8: 0}, [])
    assert row["fragments"] == "free GPUs: 8, but no request of 8 fits"


def test_fragments_are_not_claimed_if_a_host_may_be_missing() -> None:
    counts = (count("gpu1", 3), count("gpu3", 3))
    (row,), unknown = free_rows(Fleet(counts=counts))
    assert (row["free"], row["fragments"], unknown) == (6, "free GPUs: 6, but no request of 4 fits", [])
    unlisted = replace(count("gpu2", 0), total=None, free=None, per_gpu=False)
    (row,), unknown = free_rows(Fleet(counts=(*counts, unlisted)))
    assert (row["free"], row["fragments"], unknown) == (6, "", [A100])
    (row,), _unknown = free_rows(Fleet(counts=counts, partial=(Gap(source=Source.NOVA, reason="silent"),)))
    assert row["fragments"] == ""
    (row,), unknown = free_rows(Fleet(counts=(*counts, replace(count("gpu2", 0), per_gpu=False))))
    assert (row["fragments"], unknown) == ("", [])


def test_fragments_of_vgpus_are_counted_on_each_card() -> None:
    vgpu = gpu("gpu1", 0, State.FREE)
    gpus = [
        replace(vgpu, address=f"0000:{bus:02x}:00.0", model="A16-8Q", dev_type=MDEV, units=4, used=used)
        for bus, used in ((1, 1), (2, 1), (3, 4))
    ]
    (row,), _unknown = free_rows(Fleet(counts=host_counts(gpus, Index(Answers()))))
    assert (row["free"], row["most"], row["fitting"]) == (6, 3, {1: 6, 2: 2, 4: 0})
    assert row["fragments"] == "free GPUs: 6, but no request of 4 fits"
    single = [replace(part, units=1, used=0) for part in gpus]
    (row,), _unknown = free_rows(Fleet(counts=host_counts(single, Index(Answers()))))
    assert (row["fitting"], row["fragments"]) == ({1: 3}, "")  # virtual functions with a device each


def test_whole_hosts_are_no_fragments() -> None:
    (row,), _unknown = free_rows(Fleet(counts=(count("gpu1", 8), count("gpu2", 1))))
    assert (row["fitting"][8], row["fragments"]) == (1, "")


def test_sizes_end_with_the_largest_host() -> None:
    (row,), _unknown = free_rows(Fleet(counts=(count("gpu1", 2, total=2),)))
    assert list(row["fitting"]) == [1, 2]
    (row,), _unknown = free_rows(Fleet(counts=(replace(count("gpu1", 40, total=40), model=""),)))
    assert (row["fitting"], row["model"]) == ({1: 40, 2: 20, 4: 10, 8: 5, 16: 2}, "unknown model")
    (row,), _unknown = free_rows(Fleet(counts=(replace(count("gpu1", 0, total=None), used=3),)))
    assert (row["free"], row["fitting"]) == (0, {1: 0, 2: 0})  # as many as are in use, at least


def test_models_with_unknown_free_gpus_are_named() -> None:
    _rows, unknown = free_rows(join(Answers(servers=(server("vm1", "gpu1"),))))
    assert unknown == ["k4200"]


def test_projects_with_most_gpus_come_first() -> None:
    fleet = fleet_of(4)
    rows = projects(fleet)
    assert [row["gpus"] for row in rows] == sorted((row["gpus"] for row in rows), reverse=True)
    assert sum(row["gpus"] for row in rows) == sum(gpu.used for gpu in fleet.gpus)
    named = next(row for row in rows if row["identity"])
    assert fleet.projects[named["identity"]] == named["name"]
    assert named["models"] == f"{named['gpus']} {TIMES} {A100}"
    assert [row["share"] for row in rows] == [
        round(100 * row["gpus"] / sum(row["gpus"] for row in rows), 2) for row in rows
    ]
    assert [row["name"] for row in rows if row["gpus"] == named["gpus"]] == sorted(
        row["name"] for row in rows if row["gpus"] == named["gpus"]
    )
    (unnamed,) = projects(Fleet(gpus=(gpu("gpu1", 0, State.ALLOCATED),)))
    assert (unnamed["name"], unnamed["identity"], unnamed["share"]) == (
        gpu("gpu1", 0, State.ALLOCATED).holders[0].project,
        "",
        100,
    )
    assert projects(Fleet(gpus=(gpu("gpu1", 0, State.FREE),))) == []


def test_gpus_in_use_without_a_holder_belong_to_an_unknown_project() -> None:
    lost = replace(gpu("gpu1", 0, State.ALLOCATED), holders=())
    (row,) = projects(Fleet(gpus=(lost,), counts=(count("gpu1", 0, total=1),)))
    assert (row["name"], row["gpus"], row["instances"]) == ("unknown", 1, 0)


def test_gpus_of_stopped_instances_are_counted() -> None:
    assert idle(fleet_of(3)) == "3 GPUs of instances that do not run (3 SHUTOFF)"
    assert idle(Fleet(gpus=(gpu("gpu1", 6, State.FREE), gpu("gpu1", 0, State.ALLOCATED)))) == ""
    one = gpu("gpu1", 0, State.ALLOCATED)
    stopped = replace(one.holders[0], server=server("vm", "gpu1", status="stopped"))  # as a database has it
    held = replace(one, holders=(stopped,))
    assert idle(Fleet(gpus=(held,))) == "1 GPU of instances that do not run (1 STOPPED)"
    others = [replace(held, state=state) for state in (State.CLAIMED, State.INCONSISTENT)]
    assert idle(Fleet(gpus=tuple(others))).startswith("2 GPUs of")
    unheld = (replace(held, state=State.RESERVED), replace(held, holders=(replace(stopped, migration=True),)))
    assert idle(Fleet(gpus=unheld)) == ""
    assert idle(Fleet(gpus=(replace(one, holders=(replace(stopped, server=None),)),))) == ""


def test_many_messages_of_one_code_are_limited() -> None:
    found = tuple(
        Finding(code=Code("GPU701"), severity=Severity.WARNING, place=f"gpu{n}", message=f"message {n}", remedy="wait")
        for n in range(60)
    )
    (row,) = finding_rows(Fleet(findings=found))
    assert (len(row["messages"]), row["more"]) == (50, 10)
    assert (row["severity"], row["code"], row["remedy"], row["messages"][0]) == (
        "warning",
        "GPU701",
        "wait",
        ("gpu0", "message 0"),
    )
    (row,) = finding_rows(Fleet(findings=found[:50]))
    assert (len(row["messages"]), row["more"]) == (50, 0)


def test_a_flavor_has_the_words_of_capacity() -> None:
    row = flavor_row(["g8", "8 k4200", "at most 3", 32, "1 GPU: reserved (gpu1)\n2 GPUs: in use"])
    assert (row["flavor"], row["gpus"], row["fits"], row["free"]) == ("g8", "8 k4200", "at most 3", "32")
    assert row["limits"] == ["1 GPU: reserved (gpu1)", "2 GPUs: in use"]
    assert len(flavor_row(["f" * 300, "", "", "", ""])["flavor"]) == 80
