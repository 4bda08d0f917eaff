"""Nova's own code reads what gpustack renders, and stumbles over what its linter calls an error."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gpustack.base.findings import errors
from gpustack.configure.desired import wanted
from gpustack.configure.lint import lint
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.render import render
from gpustack.hosts.facts.model import Host
from gpustack.nova_options import releases
from gpustack.nova_options.device_spec import DeviceSpec, matched
from gpustack.nova_options.pci_values import EntryError, specs_of
from gpustack.spec.load import parse_spec
from gpustack_demo.embedded.environment import ensure
from gpustack_demo.embedded.releases import available
from support.host_samples import function, host
from support.network_cards import CARD, PART, network_card
from support.nova_judge import Judge
from support.nova_made import IDS, cards, configurations, made

CHOSEN = os.environ.get("GPUSTACK_NOVA_RELEASES", "2025.2 2026.2").split()
RELEASES = [entry.name for entry in available() if entry.name in CHOSEN or CHOSEN == ["all"]]
MANY = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), report_multiple_bugs=False)


@pytest.fixture(scope="module", params=RELEASES)
def judge(request) -> Iterator[Judge]:
    with Judge(ensure(request.param)) as judge:
        yield judge


@MANY
@given(case=made())
def test_nova_reads_what_is_rendered(judge, tmp_path_factory, case):
    release = releases.release(judge.release)
    assume(release.major >= case.release.major)
    desired = wanted(case.spec, case.hosts, release=release)
    rendering = render(desired, hosts=case.hosts, together=True)
    assume(not errors(rendering.findings))
    directory = tmp_path_factory.mktemp("rendered")
    for facts, file in zip(sorted(case.hosts, key=lambda h: h.hostname), configurations(rendering), strict=True):
        path = directory / f"{file.target}.conf"
        path.write_text(file.text)
        answer = judge.asked([path], facts)
        assert answer["refused"] == []
        assert list(answer["aliases"]) == list(dict.fromkeys(alias.name for alias in desired.aliases))
        expected = case.targets[facts.hostname]
        assert sorted(answer["offered"]) == case.offered(facts.hostname)
        assert answer["filters"][-1] == "PciPassthroughFilter"
        assert bool(answer["report"]) is (desired.placement != "off")
        assert bool(answer["schedule"]) is (desired.placement == "schedule")
        if desired.placement == "off":
            shares = {alias: len(addresses) for alias, addresses in expected.items() if alias in answer["shares"]}
            assert {alias: answer["shares"][alias] for alias in shares} == shares


def test_the_table_of_filters_is_novas(judge, tmp_path):
    path = tmp_path / "nova.conf"
    path.write_text("[DEFAULT]\n")
    answer = judge.asked([path])
    assert set(answer["all_filters"]) == releases.filters(releases.release(judge.release))
    assert answer["scheduler"] == len(releases.default_filters(releases.release(judge.release)))


ADDRESSES = st.sampled_from(
    [
        "0000:01:00.0",
        "0000:01:00.*",
        "*:01:00.0",
        ":02:00.",
        "01:00.1",
        "*:*:*.*",
        "",
        ".0",
        ".",
        "02:00",
        "0000:03:0x0.0",
        "a:b:c:d.0",
        "0000:01:20.0",
        "0000:01:00.9",
        {"bus": "0[1-3]", "slot": ".*"},
        {"domain": "0000", "bus": "01", "slot": "00", "function": "0"},
        {"function": "0"},
        {"bus": "("},
        {"bus": 1},
        5,
        None,
    ]
)
TAGS = {
    "vendor_id": st.sampled_from(["10de", "10DE", "*", " 10de ", "0x10de", "1002", "15b3", "zzzz", "12345", 4318]),
    "product_id": st.sampled_from(["11b4", "20b2", "*", "1017", "1018", "0E0A", " 11b4", "q", 1]),
    "address": ADDRESSES,
    "devname": st.sampled_from(["eth0", "eth1", "", None]),
    "managed": st.sampled_from(["yes", "no", "perhaps", True]),
    "live_migratable": st.sampled_from(["yes", "FALSE", "maybe"]),
    "name": st.just("a tag"),
}
ENTRIES = st.fixed_dictionaries({}, optional=TAGS)


@MANY
@given(data=st.data(), entry=ENTRIES)
def test_our_matching_is_novas(judge, tmp_path_factory, data, entry):
    functions, _ = data.draw(cards({ids: data.draw(st.booleans()) for ids in IDS}))
    for number, nic in enumerate(f for f in functions if f["product"] == "1017"):
        nic["uses"] = {"net": [{"name": f"eth{number}"}]}
    host = Host.model_validate({"version": 1, "hostname": "h", "pci": functions})
    release = releases.release(judge.release)
    path = tmp_path_factory.mktemp("one") / "nova.conf"
    path.write_text(f"[pci]\n{releases.device_spec_option(release).name} = {json.dumps(entry)}\n")
    answer = judge.asked([path], host)
    booleans = [tag for tag in ("managed", "live_migratable") if tag in releases.keys("device_spec", release)]
    try:
        spec = DeviceSpec.parse(entry, booleans=booleans)
    except ValueError:
        assert answer.get("whitelist_error"), "Nova takes what we refuse"
        return
    assert not answer.get("whitelist_error"), "Nova refuses what we take"
    assert sorted(answer["offered"]) == sorted(matched([spec], host))


ALIAS_VALUES = {
    "name": st.sampled_from(["a", "", " b ", "x" * 257, 1]),
    "vendor_id": st.sampled_from(["10de", "10DE", "10d", "0x10de", 4318]),
    "product_id": st.sampled_from(["11b4", "11b4 ", None]),
    "device_type": st.sampled_from(["type-PCI", "type-PF", "type-VF", "type-pci", "PF"]),
    "numa_policy": st.sampled_from(["legacy", "required", "preferred", "socket", "strict"]),
    "resource_class": st.sampled_from(["GPU", "CUSTOM_X", 3]),
    "traits": st.sampled_from(["A,B", ["A"]]),
    "live_migratable": st.sampled_from(["yes", "No", "perhaps", True]),
    "capability_type": st.sampled_from(["pci", "usb"]),
    "address": st.just("0000:01:00.0"),
}


@MANY
@given(lines=st.lists(st.fixed_dictionaries({}, optional=ALIAS_VALUES), min_size=1, max_size=3), schedule=st.booleans())
def test_nova_refuses_an_alias_exactly_when_lint_calls_it_an_error(judge, tmp_path_factory, lines, schedule):
    release = releases.release(judge.release)
    path = tmp_path_factory.mktemp("alias") / "nova.conf"
    text = "[pci]\n" + "".join(f"alias = {json.dumps(line)}\n" for line in lines)
    if schedule and release.major >= 27:
        text += "[filter_scheduler]\npci_in_placement = true\n"
    path.write_text(text)
    refused = bool(judge.asked([path]).get("aliases_error"))
    report = lint([f"api={path}"], LintSubject(release=release))
    reported = {f.code for f in errors(report.findings)} & {"GPU334", "GPU336", "GPU344", "GPU345", "GPU346"}
    if release.major < 32:
        reported -= {"GPU345", "GPU346"}  # older releases fail later, when a flavor is used
    assert refused is bool(reported)


def test_every_release_agrees_with_the_table(judge, tmp_path):
    """Option names and the default filters, asked of the installed Nova."""
    release = releases.release(judge.release)
    path = tmp_path / "nova.conf"
    path.write_text("[pci]\n")
    answer = judge.asked([path])
    assert answer["filters"] == list(releases.default_filters(release))
    assert answer["alias_keys"] == sorted(releases.keys("alias", release))
    for key, option in (("report", "pci/report_in_placement"), ("schedule", "filter_scheduler/pci_in_placement")):
        assert (answer[key] is not None) is releases.option(option).known_to(release)
    entry = '{"name": "x", "vendor_id": "10de", "product_id": "11b4"}'
    value = {"bool": "true", "list": "X", "multi": entry, "number": "10", "text": "X"}
    for option in releases.options(release):
        if option.services == ("placement",):  # placement.conf: see tests/nova/render/test_starts.py
            continue
        for name in (option.path, *option.old_names):
            group, _, option_name = name.partition("/")
            path.write_text(f"[{group}]\n{option_name} = {value[option.kind]}\n")
            answer = judge.asked([path])
            if option.path == "pci/alias":
                assert list(answer["aliases"]) == ["x"], name
            elif option.kind == "multi" and option.group == "pci":
                assert len(answer["devices"]) == 1, name
            elif option.name == "enabled_filters":
                assert answer["filters"] == ["X"], name
            elif option.name == "pci_weight_multiplier":
                assert answer["pci_weight_multiplier"] == 10, name


@pytest.mark.parametrize("text", ["{'vendor_id': '10de'}", "5", '["x"]', '{"vendor_id": "10de",}'])
def test_nova_refuses_what_is_no_entry(judge, tmp_path, text):
    with pytest.raises(EntryError):
        specs_of(text)
    path = tmp_path / "nova.conf"
    path.write_text(f"[pci]\n{releases.device_spec_option(releases.release(judge.release)).name} = {text}\n")
    assert judge.asked([path]).get("whitelist_error")


NETWORKS = """\
version: 1
models: {p100: {match: {vendor: "10de", product: "15f8"}}}
hosts: {gpu01: [p100]}
nova: {release: "RELEASE"}
networks: {rdma: {match: {interfaces: [ens1]}, physical_network: fabric}}
"""
DIRECT = {"network": "fabric", "vnic_type": "direct"}
WHOLE = {"network": "fabric", "vnic_type": "direct-physical"}
PORTS = [
    (DIRECT, True),
    ({**DIRECT, "network": "other"}, False),
    (WHOLE, False),
    ({**DIRECT, "numa_policy": "required", "node": 0}, False),
    ({**DIRECT, "numa_policy": "required", "node": 1}, True),
    ({**DIRECT, "flavor_policy": "required", "node": 0}, False),
    ({**DIRECT, "flavor_policy": "required", "numa_policy": "preferred", "node": 0}, True),
    ({**DIRECT, "flavor_policy": "required"}, True),  # without NUMA nodes, the policy has no effect
]


@pytest.mark.parametrize("part", [PART, CARD])
def test_ports_get_rendered_virtual_functions_and_no_card(judge, tmp_path, part):
    """Nova's own code makes the request from the port; Neutron's answers are a stand-in."""
    cards_of_host = [*network_card(0x1A, 2, "ens1", node=1, part=part), *network_card(0x1B, 2, "ens2", part=part)]
    facts = host(function("0000:88:00.0", numa_node=0), *cards_of_host)
    release = releases.release(judge.release)
    desired = wanted(parse_spec(NETWORKS.replace("RELEASE", judge.release), "spec"), [facts], release=release)
    (file,) = render(desired, hosts=[facts], together=True).files
    path = tmp_path / "nova.conf"
    path.write_text(file.text)
    answer = judge.asked([path], facts, ports=[port for port, _ in PORTS])
    assert answer["offered"] == ["0000:88:00.0", "0000:1a:10.0", "0000:1a:10.2"]
    assert answer["ports"] == [fits for _, fits in PORTS]


@pytest.mark.parametrize(
    ("entry", "sriov"),
    [({"devname": "ens1"}, True), ({"address": "0000:1a:00.0"}, True), ({"devname": "ens1"}, False)],
)
def test_lint_reports_entries_by_which_a_port_takes_the_card(judge, tmp_path, entry, sriov):
    card, *_ = network_card(0x1A, 0, "ens1")
    facts = host(card if sriov else {**card, "sriov_totalvfs": None})
    name = releases.device_spec_option(releases.release(judge.release)).name
    path = tmp_path / "nova-compute.conf"
    path.write_text(f"[pci]\n{name} = {json.dumps({**entry, 'physical_network': 'fabric'})}\n")
    assert judge.asked([path], facts, ports=[WHOLE, DIRECT])["ports"] == [sriov, False]
    report = lint([str(path)], LintSubject(release=releases.release(judge.release), hosts=[facts]))
    assert ("GPU887" in [f.code for f in report.findings]) is sriov
