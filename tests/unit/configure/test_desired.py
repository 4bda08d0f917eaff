"""What Nova needs, decided by the facts of the hosts."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings

from gpustack.base.findings import errors
from gpustack.configure.desired import DesiredConfig, wanted
from gpustack.configure.render import TOOLS, render
from gpustack.hosts.facts.model import Host
from gpustack.nova_options.device_spec import DeviceSpec, offered
from gpustack.nova_options.releases import release
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Spec
from support import host_samples
from support.network_cards import CARD, network_card
from support.nova_hosts import host, raw
from support.nova_made import made

GPU = host_samples.function("0000:88:00.0")
IDS = {"vendor_id": "8086", "product_id": "10ca", "physical_network": "fabric"}


def network_facts(*, part: str = "8086:10ca") -> Host:
    return host_samples.host(GPU, *network_card(0x1A, 2, "ens1", part=part), *network_card(0x1B, 2, "ens2", part=part))


def with_networks(networks: str, hosts: list[Host], placement: str = "off") -> DesiredConfig:
    text = (
        'version: 1\nmodels: {p100: {match: {vendor: "10de", product: "15f8"}}}\nhosts: {gpu01: [p100]}\n'
        f'nova: {{release: "2025.2", placement: {placement}}}\nnetworks: {networks}\n'
    )
    return wanted(parse_spec(text, "spec"), hosts, release=release("2025.2"))


@pytest.mark.parametrize(
    ("match", "part", "entries"),
    [
        ('vendor: "8086", product: "10ca"', "8086:10ca", [IDS]),
        ("interfaces: [ens2]", "8086:10ca", [{**IDS, "address": "0000:1b:00.0"}]),
        (
            "interfaces: [ens2, ens1]",
            "8086:10ca",
            [{**IDS, "address": "0000:1a:00.0"}, {**IDS, "address": "0000:1b:00.0"}],
        ),
        # With the ids of the card, only the addresses of virtual functions leave the card out.
        (
            "interfaces: [ens1]",
            CARD,
            [{**IDS, "product_id": "10c9", "address": f"0000:1a:10.{n}"} for n in (0, 2)],
        ),
    ],
)
@pytest.mark.parametrize("placement", ["off", "schedule"])
def test_entries_match_virtual_functions_only(match: str, part: str, entries: list[dict[str, str]], placement: str):
    known = network_facts(part=part)
    config = with_networks(f"{{rdma: {{match: {{{match}}}, physical_network: fabric}}}}", [known], placement)
    _, *ports = [entry.to_dict() for entry in config.computes["gpu01"]]
    assert ports == entries
    matched = offered([DeviceSpec.parse(entry) for entry in ports], known)
    assert matched
    assert {known.functions[address].dev_type for address in matched} == {"type-VF"}
    assert errors(config.findings) == []


@pytest.mark.parametrize("deployment", TOOLS)
def test_every_deployment_tool_gets_the_ports_after_the_gpus(deployment):
    config = with_networks("{rdma: {match: {interfaces: [ens1]}, physical_network: fabric}}", [network_facts()])
    rendering = render(config, deployment=deployment, hosts=[network_facts()])
    text = "\n".join(file.text for file in rendering.files).replace('\\"', '"')
    assert text.index('"product_id": "15f8"') < text.index('"physical_network": "fabric"')


def test_doubtful_networks_are_reported():
    networks = """{a: {match: {interfaces: [ens9]}, physical_network: a},
                   b: {match: {interfaces: [ens1]}, physical_network: b},
                   c: {match: {addresses: ["0000:1a:00.0"]}, physical_network: c}}"""
    config = with_networks(networks, [network_facts()])
    reports = [f for f in config.findings if f.code in ("GPU885", "GPU886")]
    assert [(f.code, f.place) for f in reports] == [("GPU885", "gpu01"), ("GPU886", "gpu01")]
    assert "networks b and c match the same virtual functions: 0000:1a:10.0, 0000:1a:10.2;" in reports[1].message
    assert len(config.computes["gpu01"]) == 1


def test_a_virtual_function_that_the_host_uses_is_not_offered():
    """The others of the card have entries of their own: the address of the card would match it too."""
    card, first, second = network_card(0x1A, 2, "ens1")
    known = host_samples.host(GPU, card, {**first, "uses": {"net": [{"name": "ens1v0", "state": "up"}]}}, second)
    config = with_networks("{rdma: {match: {interfaces: [ens1]}, physical_network: fabric}}", [known])
    assert [entry.to_dict() for entry in config.computes["gpu01"][1:]] == [{**IDS, "address": "0000:1a:10.2"}]
    (report,) = [f for f in config.findings if f.code in ("GPU885", "GPU889")]
    assert "0000:1a:10.0 (ens1v0)" in report.message
    assert errors(config.findings) == []


FLAMINGO = release("2025.2")


def spec(models: str, hosts: str = '{"*": [a]}', placement: str = "off") -> object:
    text = f"version: 1\nmodels: {models}\nhosts: {hosts}\nnova: {{release: flamingo, placement: {placement}}}\n"
    return parse_spec(text, "spec")


def codes(desired) -> list[str]:
    return [f.code for f in desired.findings if f.code not in ("GPU307", "GPU308", "GPU310", "GPU311")]


K4200 = '{a: {match: {vendor: "10de", product: "11b4"}}}'


def test_the_cards_decide_the_device_type():
    desired = wanted(spec(K4200), [host("k4200-prepared")], release=FLAMINGO)
    assert [str(alias) for alias in desired.aliases] == [
        '{"name": "a", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI"}'
    ]
    a100 = '{a: {match: {vendor: "10de", product: "20b2"}, alias: a100}}'
    (alias,) = wanted(spec(a100), [host("nvswitch")], release=FLAMINGO).aliases
    assert (alias.name, alias.device_type) == ("a100", "type-PF")


@pytest.mark.parametrize(("mode", "reported"), [("full", True), ("shared", True), ("isolated", False)])
def test_bound_switches_without_an_alias_are_reported(mode, reported):
    hosts = f'{{"*": {{models: [a], options: {{nvswitch: {mode}}}}}}}'
    document = spec('{a: {match: {vendor: "10de", product: "20b2"}}}', hosts)
    findings = [f for f in wanted(document, [host("nvswitch")], release=FLAMINGO).findings if f.code == "GPU321"]
    assert [mode in f.message for f in findings] == [True] * reported


def test_a_companion_is_no_model_of_its_own():
    """With an alias for each function of a card, Nova pairs the GPU of one card with the audio of another."""
    models = K4200[:-1] + ', b: {match: {vendor: "10de", product: "0e0a"}}}'
    desired = wanted(spec(models, '{"*": [a, b]}'), [host("k4200-prepared")], release=FLAMINGO)
    assert codes(desired) == ["GPU300"]
    assert [alias.name for alias in desired.aliases] == ["a"]


def test_ids_where_all_cards_go_and_addresses_where_one_stays():
    (entry,) = wanted(spec(K4200), [host("k4200-prepared")], release=FLAMINGO).computes["gpu01"]
    assert entry.to_dict() == {"vendor_id": "10de", "product_id": "11b4"}
    one_card = '{a: {match: {vendor: "10de", product: "11b4", addresses: ["0000:88:00.0"]}}}'
    (entry,) = wanted(spec(one_card), [host("k4200-prepared")], release=FLAMINGO).computes["gpu01"]
    assert entry.to_dict() == {"vendor_id": "10de", "product_id": "11b4", "address": "0000:88:00.0"}


def test_hosts_that_disagree_are_named():
    second = raw("k4200-prepared")
    for function in second["pci"]:
        if function["product"] == "11b4":
            function["sriov_totalvfs"] = 4
    hosts = [host("k4200-prepared"), host("k4200-prepared", hostname="gpu02", pci=second["pci"])]
    desired = wanted(spec(K4200), hosts, release=FLAMINGO)
    (disagreement,) = errors(desired.findings)
    assert (disagreement.code, disagreement.place) == ("GPU301", "alias a")
    assert "type-PCI on gpu01; type-PF on gpu02" in disagreement.message
    two = f'{K4200[:-2]}, alias: x}}, b: {{match: {{vendor: "10de", product: "15f8"}}, alias: x}}}}'
    hosts = [host("k4200-prepared", hostname="gpu03"), host("shared-nic", hostname="gpu01"), hosts[1]]
    (disagreement,) = errors(wanted(spec(two, '{"*": [a, b]}'), hosts, release=FLAMINGO).findings)
    assert "type-PCI on gpu01, gpu03; type-PF on gpu02" in disagreement.message


def test_without_facts_of_a_model_nothing_is_guessed():
    desired = wanted(spec('{a: {match: {vendor: "10de", product: "20b2"}}}'), [host("k4200")], release=FLAMINGO)
    assert desired.aliases == ()
    assert codes(desired) == ["GPU300"]


def shared(product: str, slot: str, driver: str | None = None) -> object:
    """The host ``k4200-prepared`` with four virtual functions of one card."""
    document = raw("k4200-prepared")
    card = next(f for f in document["pci"] if f["address"] == "0000:88:00.0")
    others = [f for f in document["pci"] if not f["address"].startswith("0000:88:00")]
    part = {**card, "product": product, "physical_function": card["address"], "driver": driver, "virtual_functions": []}
    part |= {"vgpu_type": "711"} if driver == "nvidia" else {}
    parts = [{**part, "address": f"0000:88:{slot}.{number}"} for number in range(1, 5)]
    physical = {**card, "driver": "nvidia", "sriov_totalvfs": 4, "sriov_numvfs": 4}
    return host("k4200-prepared", pci=[*others, physical, *parts])


IN_SLOT = [{"vendor_id": "10de", "product_id": "11b4", "address": f"0000:88:00.{n}"} for n in range(1, 5)]
BY_IDS = [{"vendor_id": "10de", "product_id": "11ff"}]


@pytest.mark.parametrize(("product", "slot", "entries"), [("11b4", "00", IN_SLOT), ("11ff", "10", BY_IDS)])
def test_virtual_functions_are_offered_and_their_card_is_not(product: str, slot: str, entries: list[dict[str, str]]):
    model = f'{{a: {{match: {{vendor: "10de", product: "{product}", function: virtual}}}}}}'
    facts = shared(product, slot)
    desired = wanted(spec(model), [facts], release=FLAMINGO)
    assert [entry.to_dict() for entry in desired.computes["gpu01"]] == entries
    assert [alias.device_type for alias in desired.aliases] == ["type-VF"]
    parsed = [DeviceSpec.parse(entry) for entry in entries]
    assert offered(parsed, facts) == {f"0000:88:{slot}.{number}" for number in range(1, 5)}
    assert errors(desired.findings) == []
    assert "GPU307" not in [f.code for f in desired.findings], "libvirt binds them"


@pytest.mark.parametrize(
    ("product", "slot", "vfs", "entries"),
    [
        ("11b4", "00", "4", IN_SLOT),
        ("11b4", "00", "2", IN_SLOT[:2]),
        ("11ff", "10", "{count: 4, product: '11ff'}", BY_IDS),
    ],
)
def test_shared_cards_offer_their_virtual_functions(product, slot, vfs, entries):
    model = f'{{a: {{match: {{vendor: "10de", product: "11b4", addresses: ["0000:88:00.0"]}}, vfs: {vfs}}}}}'
    desired = wanted(spec(model), [shared(product, slot)], release=FLAMINGO)
    assert [entry.to_dict() for entry in desired.computes["gpu01"]] == entries
    (alias,) = desired.aliases
    assert (alias.device_type, alias.product_id) == ("type-VF", product)
    limits = {"default": {"a": 1}, "count": "marker"}
    quotas = Spec.model_validate({**spec(model).model_dump(by_alias=True), "quotas": limits})
    counted = wanted(quotas, [shared(product, slot)], release=FLAMINGO)
    assert counted.markers == {"gpu01": {"CUSTOM_GPU_QUOTA_A": len(entries) if slot == "00" else 4}}
    assert errors(desired.findings) == []


@pytest.mark.parametrize(("driver", "managed"), [("nvidia", "no"), (None, None)])
def test_libvirt_leaves_virtual_functions_on_the_nvidia_driver(driver: str | None, managed: str | None):
    model = '{a: {match: {vendor: "10de", product: "11ff", function: virtual}}}'
    (entry,) = wanted(spec(model), [shared("11ff", "10", driver)], release=FLAMINGO).computes["gpu01"]
    assert entry.to_dict().get("managed") == managed


def test_aliases_of_virtual_functions_require_no_trait_of_the_pool():
    """Their memory is unknown, so that they are not in it: without its traits and its resource class."""
    text = "models: {a: {match: {vendor: '10de', product: 11ff, function: virtual}}}\nhosts: {'*': [a]}"
    nova = "nova: {release: flamingo, placement: schedule, class_by: pool}"
    desired = wanted(parse_spec(f"version: 1\n{text}\n{nova}\n", "spec"), [shared("11ff", "10")], release=FLAMINGO)
    (alias,) = desired.aliases
    (entry,) = desired.computes["gpu01"]
    assert (alias.resource_class, alias.traits) == (entry.resource_class, entry.traits) == (None, ())


def test_card_and_virtual_functions_may_be_models_of_different_hosts():
    match = 'match: {vendor: "10de", product: "11b4"'
    models = f"{{a: {{{match}}}}}, b: {{{match}, function: virtual}}}}}}"
    hosts = [host("k4200-prepared", hostname="gpu02"), shared("11b4", "00")]
    desired = wanted(spec(models, "{gpu02: [a], gpu01: [b]}"), hosts, release=FLAMINGO)
    assert [(alias.name, alias.device_type) for alias in desired.aliases] == [("a", "type-PCI"), ("b", "type-VF")]
    assert errors(desired.findings) == []


MI300X = '{a: {match: {vendor: "1002", product: "74a1"}}}'


def test_virtual_functions_of_a_card_stand_against_it():
    pci = raw("mi300x")["pci"]
    main = next(f for f in pci if f["product"] == "74a1")
    main["virtual_functions"], main["sriov_numvfs"] = ["0000:05:02.0"], 1
    enabled = wanted(spec(MI300X), [host("mi300x", pci=pci)], release=FLAMINGO)
    assert {"GPU017", "GPU501"} <= {f.code for f in enabled.findings}
    assert [entry.address for entry in enabled.computes["gpu-amd01"]] == ["0000:85:00.0"], "the other one, by address"
    main["sriov_numvfs"] = None  # facts that lack the number
    vf = {**main, "address": "0000:05:02.0", "product": "74b5", "physical_function": main["address"]}
    vf |= {"sriov_totalvfs": None, "virtual_functions": []}
    addresses = [f["address"] for f in pci if f["product"] == "74a1"]
    by_address = f'{{a: {{match: {{vendor: "1002", product: "74a1", addresses: ["{addresses[0]}"]}}}}}}'
    hosts = [host("mi300x", pci=[*pci, vf])]
    (error,) = errors(wanted(spec(by_address), hosts, release=FLAMINGO).findings)
    assert (error.code, "0000:05:02.0" in error.message) == ("GPU875", True), "ids keep a VF of other ids out"
    vf["product"] = "74a1"
    desired = wanted(spec(by_address), [host("mi300x", pci=[*pci, vf])], release=FLAMINGO)
    (error,) = errors(desired.findings)
    assert error.code == "GPU306"
    assert "virtual function of 0000:05:00.0" in error.message


@pytest.mark.parametrize(
    ("name", "extra", "placement", "expected"),
    [
        ("ocata", "", "off", []),
        ("pike", "numa_policy: required", "off", ["GPU305"]),
        ("queens", "numa_policy: required", "off", []),
        ("victoria", "numa_policy: socket", "off", ["GPU305"]),
        ("yoga", "", "report", ["GPU305"]),
        ("zed", "", "report", []),
        ("zed", "", "schedule", ["GPU305"]),
        ("2023.1", "resource_class: GOOD", "schedule", []),
        ("2024.2", "managed: false", "off", ["GPU305"]),
        ("2025.1", "managed: false, live_migratable: true", "off", []),
        ("2025.2", "resource_class: GOOD", "off", ["GPU315"]),
        ("2025.1", "one_time_use: true", "report", ["GPU305"]),
        ("2025.2", "one_time_use: true", "off", ["GPU382"]),
        ("2025.2", "one_time_use: false", "off", []),
        ("2025.2", "one_time_use: true", "report", []),
    ],
)
def test_what_the_release_has_not_got(name, extra, placement, expected):
    models = f'{{a: {{match: {{vendor: "10de", product: "11b4"}}, {extra}}}}}'.replace(", }", "}")
    desired = wanted(spec(models, placement=placement), [host("k4200-prepared")], release=release(name))
    assert codes(desired) == expected


TWO = """{
 a: {match: {vendor: "10de", product: "11b4", subsystem_vendor: "10de", subsystem_product: "1096"}, ALIASA},
 b: {match: {vendor: "10de", product: "11b4", subsystem_vendor: "103c", subsystem_product: "1096"}, ALIASB}}"""


def two(a: str, b: str, placement: str = "off"):
    pci = raw("k4200-prepared")["pci"]
    for function in pci:
        if function["address"] == "0000:84:00.0":
            function |= {"subsystem_vendor": "10de", "subsystem_product": "1096"}
        if function["address"] == "0000:88:00.0":
            function |= {"subsystem_vendor": "103c", "subsystem_product": "1096"}
    models = TWO.replace("ALIASA", a).replace("ALIASB", b)
    return wanted(spec(models, '{"*": [a, b]}', placement), [host("k4200-prepared", pci=pci)], release=FLAMINGO)


def test_two_aliases_for_the_same_ids():
    assert codes(two("alias: x", "alias: y")) == ["GPU302"]
    assert codes(two("alias: x, resource_class: A", "alias: y, resource_class: B", "schedule")) == ["GPU784"] * 2
    shared = two("alias: x", "alias: x")
    assert codes(shared) == []
    assert len(shared.aliases) == 1


def test_one_alias_for_cards_of_two_ids():
    models = """{a: {match: {vendor: "10de", product: "11b4"}, alias: gpu, RC},
                 b: {match: {vendor: "1002", product: "74a1"}, alias: gpu, RC}}"""
    hosts = [host("k4200-prepared"), host("mi300x")]
    pci = hosts[1].pci
    hosts[1] = host("mi300x", pci=[{**f.model_dump(by_alias=True), "sriov_totalvfs": None} for f in pci])

    def found(rc: str, placement: str):
        return wanted(spec(models.replace("RC", rc), '{"*": [a, b]}', placement), hosts, release=FLAMINGO)

    assert codes(found("numa_policy: legacy", "off")) == []
    assert len(found("numa_policy: legacy", "off").aliases) == 2
    assert codes(found("numa_policy: legacy", "schedule")) == ["GPU303"]
    by_class = found("resource_class: GPU", "schedule")
    assert codes(by_class) == []
    assert [a.to_dict() for a in by_class.aliases] == [
        {"name": "gpu", "device_type": "type-PCI", "resource_class": "GPU"}
    ]


def test_models_that_share_an_alias_must_agree():
    desired = two("alias: x, numa_policy: required", "alias: x, numa_policy: legacy")
    assert codes(desired) == ["GPU304"]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(made())
def test_every_device_spec_matches_the_targets_and_nothing_else(case):
    desired = wanted(case.spec, case.hosts, release=case.release)
    assume(not errors(desired.findings))
    for facts in case.hosts:
        specs = [DeviceSpec.parse(entry.to_dict()) for entry in desired.computes[facts.hostname]]
        assert offered(specs, facts) == set(case.offered(facts.hostname))


def variant_host():
    """A host on which every kernel has a VFIO variant driver for the cards."""
    changed = raw("k4200-prepared")
    for kernel in changed["boot"]["kernels"]:
        kernel["modules"]["nvgrace_gpu_vfio_pci"] = "module"
        pattern = "vfio_pci:v000010DEd000011B4sv*sd*bc*sc*i*"
        kernel["vfio_aliases"] = [{"pattern": pattern, "module": "nvgrace_gpu_vfio_pci"}]
    for function in changed["pci"]:
        if function["product"] == "11b4":
            function["modalias"] = "pci:v000010DEd000011B4sv000010DEsd00001096bc03sc00i00"
    return host("k4200-prepared", boot=changed["boot"], pci=changed["pci"])


@pytest.mark.parametrize(
    ("name", "model", "managed", "expected"),
    [
        ("2025.1", "", "no", []),
        ("2025.1", ", managed: true", "yes", []),
        ("2025.1", ", variant: false", None, []),
        ("2025.1", ", driver: pci-stub", None, []),
        ("2024.2", "", None, ["GPU320"]),
        ("2024.2", ", variant: false", None, []),
    ],
)
def test_a_variant_driver_is_left_alone_by_libvirt(name, model, managed, expected):
    models = f'{{a: {{match: {{vendor: "10de", product: "11b4"}}{model}}}}}'
    desired = wanted(spec(models), [variant_host()], release=release(name))
    (entry,) = desired.computes["gpu01"]
    assert entry.to_dict().get("managed") == managed
    assert codes(desired) == expected


@pytest.mark.parametrize(
    ("driver", "name", "reported"), [("pci-stub", "k4200-prepared", False), ("pci-stub", "k4200", True)]
)
def test_a_card_that_a_guest_has_is_on_vfio_pci_and_prepared_all_the_same(driver, name, reported):
    """From pci-stub, libvirt moves it there for as long as the guest runs."""
    models = f'{{a: {{match: {{vendor: "10de", product: "11b4"}}, driver: {driver}}}}}'
    findings = wanted(spec(models), [host(name)], release=release("2025.1")).findings
    assert ("GPU307" in {f.code for f in findings}) is reported


def test_a_plain_driver_is_reported_where_a_variant_is_assigned():
    """As host preparation does: it asks for another boot until the variant has the card."""
    models = '{a: {match: {vendor: "10de", product: "11b4"}}}'
    findings = wanted(spec(models), [variant_host()], release=release("2025.1")).findings
    (unbound,) = [f for f in findings if f.code == "GPU307"]
    assert "vfio-pci instead of nvgrace_gpu_vfio_pci" in unbound.message


def outage(*entries: str, placement: str = "off") -> object:
    model = '{a: {match: {vendor: "10de", product: "11b4"}, resource_class: CUSTOM_K, traits: [CUSTOM_T], alias: k}}'
    listed = "".join(f"  - {{host: gpu01, reason: no reset, {entry}}}\n" for entry in entries)
    text = f"version: 1\nmodels: {model}\nhosts: {{gpu01: [a]}}\nnova: {{release: flamingo, placement: {placement}}}\n"
    return parse_spec(f"{text}out_of_service:\n{listed}" if entries else text, "spec")


def test_addresses_without_the_gpu_out_of_service():
    desired = wanted(
        outage('address: "0000:88:00.0"', placement="schedule"), [host("k4200-prepared")], release=FLAMINGO
    )
    assert [entry.to_dict() for entry in desired.computes["gpu01"]] == [
        {
            "vendor_id": "10de",
            "product_id": "11b4",
            "address": "0000:84:00.0",
            "resource_class": "CUSTOM_K",
            "traits": "CUSTOM_T",
        }
    ]
    specs = [DeviceSpec.parse(entry.to_dict()) for entry in desired.computes["gpu01"]]
    assert offered(specs, host("k4200-prepared")) == {"0000:84:00.0"}
    assert codes(desired) == []


def test_a_host_without_a_gpu_in_service_keeps_the_alias():
    desired = wanted(
        outage('address: "0000:88:00.0"', 'address: "0000:84:00.0"'), [host("k4200-prepared")], release=FLAMINGO
    )
    assert desired.computes == {"gpu01": ()}
    assert [alias.name for alias in desired.aliases] == ["k"]
    assert errors(desired.findings) == []


def test_a_card_that_is_absent_is_not_offered_when_it_returns():
    """Ids would offer it: a failed card often returns after a reboot."""
    present = raw("k4200-prepared")
    without = {"pci": [f for f in present["pci"] if not f["address"].startswith("0000:88:00")]}
    desired = wanted(outage('address: "0000:88:00.0"'), [host("k4200-prepared", **without)], release=FLAMINGO)
    assert "GPU755" in codes(desired)
    specs = [DeviceSpec.parse(entry.to_dict()) for entry in desired.computes["gpu01"]]
    assert offered(specs, host("k4200-prepared")) == {"0000:84:00.0"}


def test_an_unknown_serial_number_blocks_the_rendering():
    serial = outage('serial: "12-34-56-78-9a-bc-de-02"')
    desired = wanted(serial, [host("k4200-prepared")], release=FLAMINGO)
    assert [f.code for f in errors(desired.findings)] == ["GPU756"]


@pytest.mark.parametrize(("value", "refused"), [("true", True), ("false", False)])
def test_virtual_functions_have_no_one_time_use(value: str, refused: bool):
    model = f'{{a: {{match: {{vendor: "10de", product: "11ff", function: virtual}}, one_time_use: {value}}}}}'
    desired = wanted(spec(model, placement="report"), [shared("11ff", "10")], release=FLAMINGO)
    assert ("GPU544" in [f.code for f in desired.findings]) is refused
    assert all("one_time_use" not in entry.to_dict() for entry in desired.computes["gpu01"])
