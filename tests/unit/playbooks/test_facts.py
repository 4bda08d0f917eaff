"""facts.yml: the facts of a slice become one snapshot, whatever single hosts answer."""

from __future__ import annotations

import json
import stat

from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.store import load_snapshot
from support.playbook_place import Place, tree


def test_slices_write_a_snapshot_each_and_change_no_host(place: Place) -> None:
    roots = {name: place.add(name) for name in ("talk", "epyc")}
    place.add("talk", "lost", ansible_python_interpreter="/bin/false")
    slices = place.path / "slices"
    slices.mkdir()
    before = {name: tree(root) for name, root in roots.items()}
    assert place.play("facts", "--check", gpustack_snapshot="slices", gpustack_hosts="talk").code == 0
    assert not list(slices.iterdir())
    first = place.play("facts", gpustack_snapshot="slices", gpustack_hosts="talk,lost")
    assert first.code == 2
    assert "has the facts of 1 host; no facts of lost" in first.output
    assert (first.count("lost", "failed"), first.count("talk", "changed")) == (1, 0)
    assert place.play("facts", gpustack_snapshot="slices", gpustack_hosts="epyc").code == 0
    assert {name: tree(root) for name, root in roots.items()} == before
    assert {stat.S_IMODE(path.stat().st_mode) for path in slices.iterdir()} == {0o600}
    hosts = {host.hostname: host for host in load_snapshot(slices)}
    assert {name: len(host.pci) for name, host in hosts.items()} == {
        name: len(collect(str(root))["pci"]) for name, root in roots.items()
    }
    assert hosts["talk"].inventory_groups == ()


def test_a_host_whose_answer_is_no_facts_fails_alone(place: Place) -> None:
    """Its answer is too large or no dictionary, or the operator gave two hosts one name."""
    place.add("talk")
    for name in ("list", "large"):
        program = place.path / name
        answer = {"list": "[]", "large": '{"version": 1, "pci": [], "x": "' + "y" * (17 << 20) + '"}'}
        text = f'{{"facts": {answer[name]}, "changed": false, "guests": []}}'
        program.write_text(f"#!/bin/sh\ncat {program}.json\n", encoding="utf-8")
        program.with_suffix(".json").write_text(text, encoding="utf-8")
        program.chmod(0o755)
        place.add("talk", name, ansible_python_interpreter=str(program))
    for name in ("twin1", "twin2"):
        place.add("talk", name, gpustack_hostname="twin")
    run = place.play("facts", gpustack_snapshot="hosts.json")
    assert run.code == 2
    assert [host.hostname for host in load_snapshot(place.path / "hosts.json")] == ["talk"]
    assert "hosts.json has the facts of 1 host; no facts of " in run.output
    assert "several hosts have the name twin" in run.fatal("twin1")
    assert "several hosts have the name twin" in run.fatal("twin2")
    assert "larger than 16 MiB" in run.fatal("large")
    assert "its answer has no facts" in run.fatal("list")
    assert run.count("talk", "failed") == 0


def test_a_slice_without_hosts_is_an_error(place: Place) -> None:
    run = place.play("facts", gpustack_snapshot="hosts.json")
    assert run.code != 0
    assert "The inventory of this run has no host, so there are no facts to write" in run.output
    assert not (place.path / "hosts.json").exists()


def test_groups_of_the_inventory_are_recorded_and_never_those_of_the_host(place: Place) -> None:
    place.add("talk")
    (place.path / "groups.json").write_text(json.dumps({"racks": {"children": {"rack7": {"hosts": {"talk": {}}}}}}))
    run = place.play("facts", "-i", "groups.json", gpustack_snapshot="hosts.json")
    assert run.code == 0, run.output
    assert load_snapshot(place.path / "hosts.json")[0].inventory_groups == ("rack7", "racks")
