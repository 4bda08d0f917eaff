"""Nova gives each card the type and the resource class of mediated devices that gpustack's table of rules names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product

import pytest

from gpustack.configure.desired import wanted
from gpustack.configure.render import render
from gpustack.nova_options import releases
from gpustack.nova_options.mediated import TypeSection, card_types, settings
from gpustack.spec.vgpu_use import offered_vgpus
from gpustack_demo.embedded.environment import ensure
from gpustack_demo.embedded.releases import available
from support.mediated_hosts import CASES, host_of, spec_of
from support.nova_judge import Judge

CHOSEN = os.environ.get("GPUSTACK_NOVA_RELEASES", "2025.2 2026.2").split()
RELEASES = [entry.name for entry in available() if entry.name in CHOSEN or CHOSEN == ["all"]]
CARDS = ("0000:84:00.0", "0000:85:00.0", "0000:86:00.0")
OTHER = "0000:87:00.0"
OF_TYPE = [
    {},
    {"addresses": CARDS[:1]},
    {"addresses": CARDS[1:], "resource_class": "CUSTOM_A"},
    {"resource_class": "CUSTOM_B", "limit": 4},
]
SECTIONS = [
    *([TypeSection(type="nvidia-35", **one)] for one in OF_TYPE),
    *(
        [TypeSection(type="nvidia-35", **one), TypeSection(type="nvidia-36", **other)]
        for one, other in product(OF_TYPE, OF_TYPE)
    ),
    [TypeSection(type=f"nvidia-{n}", addresses=CARDS[n : n + 1]) for n in range(3)],
]


@pytest.fixture(scope="module", params=RELEASES)
def judge(request) -> Iterator[Judge]:
    with Judge(ensure(request.param)) as judge:
        yield judge


def answer(judge: Judge, sections: list[TypeSection], path) -> dict:
    release = releases.release(judge.release)
    groups = settings(sections, release).items()
    lines = [line for group, values in groups for line in (f"[{group}]", *(f"{k} = {v}" for k, v in values.items()))]
    path.write_text("\n".join(lines))
    return judge.asked([path], services=["compute"])


def test_the_table_names_the_type_and_class_of_each_card(judge, tmp_path):
    release = releases.release(judge.release)
    refused = 0
    for sections in SECTIONS:
        expected, nova = card_types(sections, release), answer(judge, sections, tmp_path / "nova.conf")
        if any(problem.refused for problem in expected.problems):
            assert "duplicate types" in nova["mediated_error"], sections
            refused += 1
            continue
        found = nova["mediated"]
        for address in (*CARDS, OTHER):
            of_card = found["addresses"].get(address, found["default"]), found["classes"].get(address, "VGPU")
            assert expected.of(address) == of_card, (sections, address)
    assert refused == 2


def test_the_limit_of_a_type_is_read_where_the_release_has_it(judge, tmp_path):
    sections = [TypeSection(type="nvidia-35", addresses=CARDS[:2], limit=8)]
    rendered = settings(sections, releases.release(judge.release))["mdev_nvidia-35"]
    limits = {"nvidia-35": 8} if "max_instances" in rendered else {}
    assert bool(limits) == (releases.release(judge.release).major >= 29)
    assert answer(judge, sections, tmp_path / "nova.conf")["mediated"]["limits"] == limits


def test_nova_offers_what_is_rendered(judge, tmp_path):
    """Each rendered file gives each card the type and the class of the spec, and no other card a type of the host."""
    release, rendered = releases.release(judge.release), 0
    for name, case in CASES.items():
        spec, host = spec_of(case), host_of(case)
        needs = wanted(spec, [host], release=release)
        files = [
            file
            for file in render(needs, hosts=[host]).files
            if file.name.startswith("gpu01:") and file.path.endswith(".conf")
        ]
        assert bool(files) != ("gpu01" in needs.unknown), name
        for file in files:
            path = tmp_path / "nova.conf"
            path.write_text(file.text)
            answer = judge.asked([path], host, services=["compute"])
            assert answer["refused"] == [], name
            found, cards = answer["mediated"], offered_vgpus(spec, host)
            expected = {c.function.address: (c.type.number, c.resource_class) for c in cards}
            types = {f.address: found["addresses"].get(f.address, found["default"]) for f in host.pci}
            supported = {f.address for f in host.pci if types[f.address] in [t.number for t in f.vgpu_types]}
            assert {a: (types[a], found["classes"].get(a, "VGPU")) for a in supported} == expected, name
            assert set(answer["offered"]).isdisjoint(expected), name
            rendered += bool(expected)
    assert rendered >= 4
