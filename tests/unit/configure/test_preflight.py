"""Flavors that select GPUs by attribute: the aliases that Nova needs, and what cannot work."""

from __future__ import annotations

import pytest

from gpustack.configure.desired import DesiredConfig, wanted
from gpustack.nova_options.releases import release
from gpustack.spec.load import parse_spec
from support.nova_hosts import host, raw

K4200 = 'k4200: {match: {vendor: "10de", product: "11b4"}}'
P100 = 'p100: {match: {vendor: "10de", product: "15f8"}}'
V100 = 'v100: {match: {vendor: "10de", product: "1db4"}}'
A100 = 'a100: {match: {vendor: "10de", product: "20b2"}}'
HOSTS = {"k4200": "k4200-prepared", "p100": "shared-nic", "a100": "nvswitch"}
EXPECTED = ("GPU013", "GPU034", "GPU501", "GPU307", "GPU308", "GPU310", "GPU311", "GPU315")


def desired(
    *models: str, selections: tuple[str, ...], placement: str = "schedule", class_by: str = "pool", mixed: bool = False
) -> DesiredConfig:
    names = [model.partition(":")[0] for model in models]
    flavors = "".join(
        f"  f{number}: {{gpu: {selection}, vcpus: 1, ram: 512, disk: 1}}\n"
        for number, selection in enumerate(selections)
    )
    text = (
        f"version: 1\nmodels: {{{', '.join(models)}}}\nhosts: {{'*': [{', '.join(names)}]}}\n"
        f"nova: {{release: '2025.2', placement: {placement}, class_by: {class_by}}}\n"
        + (f"flavors:\n{flavors}" if flavors else "")
    )
    hosts = [host(HOSTS[name]) for name in names if name in HOSTS]
    if mixed:  # both kinds in one host
        functions = [f for f in raw("k4200-prepared")["pci"] if f["product"] == "11b4"]
        functions += [
            {**functions[0], "address": f"0000:c{number}:00.0", "product": product, "iommu_group": 90 + number}
            for number, product in enumerate(("15f8", "1db4"))
        ]
        hosts = [host("k4200-prepared", pci=functions)]
    return wanted(parse_spec(text, "spec"), hosts, release=release("2025.2"))


def codes(config: DesiredConfig) -> list[str]:
    return [found.code for found in config.findings if found.code not in EXPECTED]


def aliases(config: DesiredConfig, name: str) -> list[dict[str, str]]:
    return [alias.to_dict() for alias in config.aliases if alias.name == name]


def test_without_placement_the_alias_lists_the_ids() -> None:
    config = desired(K4200, P100, selections=("{min_memory: 4GiB}", "{min_memory: 8GiB}"), placement="off")
    assert [alias["product_id"] for alias in aliases(config, "any-4gb")] == ["11b4", "15f8"]
    assert [alias["product_id"] for alias in aliases(config, "any-8gb")] == ["15f8"]
    assert not any("traits" in alias.to_dict() for alias in config.aliases)
    assert codes(config) == ["GPU783"]


def test_with_placement_the_alias_requires_traits() -> None:
    config = desired(K4200, P100, selections=("{min_memory: 4GiB}",))
    assert aliases(config, "any-4gb") == [
        {
            "name": "any-4gb",
            "vendor_id": "10de",
            "device_type": "type-PCI",
            "resource_class": "CUSTOM_GPU",
            "traits": "CUSTOM_GPU_MEM_GE_4GB",
        }
    ]
    assert aliases(config, "p100")[0]["traits"] == "CUSTOM_GPU_MODEL_P100"
    entries = {entry.product_id: entry for of_host in config.computes.values() for entry in of_host}
    assert "CUSTOM_GPU_MEM_GE_16GB" in entries["15f8"].traits
    assert "CUSTOM_GPU_MEM_GE_16GB" not in entries["11b4"].traits
    assert {entry.resource_class for entry in entries.values()} == {"CUSTOM_GPU"}
    assert codes(config) == ["GPU783", "GPU785"]


@pytest.mark.parametrize("placement", ["off", "report", "schedule"])
def test_one_model_needs_no_pool(placement: str) -> None:
    config = desired(K4200, P100, selections=("{min_memory: 8GiB}",), placement=placement, class_by="model")
    assert codes(config) == []
    (alias,) = aliases(config, "any-8gb")
    assert (alias["product_id"], "traits" in alias) == ("15f8", placement == "schedule")


@pytest.mark.parametrize(
    ("models", "selection", "more", "expected"),
    [
        ((K4200, P100), "{min_memory: 4GiB}", {"class_by": "model"}, ["GPU780", "GPU783"]),
        ((K4200, P100), "{min_memory: 96GiB}", {}, ["GPU781", "GPU785"]),
        ((K4200, 'x: {match: {vendor: "10de", product: "ffff"}}'), "{min_memory: 4GiB}", {}, ["GPU300", "GPU782"]),
        ((P100, A100), "{min_memory: 16GiB}", {}, ["GPU301", "GPU783"]),
        ((K4200, P100.replace("}}", "}, numa_policy: required}")), "{}", {}, ["GPU304", "GPU783"]),
        ((K4200, P100.replace("}}", "}, alias: K-4200}")), "{generation: Pascal}", {}, ["GPU785"]),
        ((K4200.replace("}}", "}, alias: k_4200}"), P100.replace("}}", "}, alias: K.4200}")), "{}", {}, ["GPU786"]),
    ],
)
def test_what_cannot_work_is_reported(
    models: tuple[str, ...], selection: str, more: dict[str, str], expected: list[str]
) -> None:
    found = codes(desired(*models, selections=(selection,), **more))  # type: ignore[arg-type]
    assert set(expected) <= set(found), found


def test_a_move_may_claim_another_kind_on_a_mixed_host() -> None:
    """Nova's claim of a move compares vendor, product and device type only. An alias of one model has its ids."""
    selections = ("{min_memory: 8GiB}", "{generation: Pascal}", "{}")
    config = desired(K4200, P100, V100, selections=selections, mixed=True)
    (warning,) = (found for found in config.findings if found.code == "GPU784")
    assert "any-8gb" in warning.message
    assert "0000:84:00.0 (k4200)" in warning.message
    assert "p100" not in warning.message
    assert "GPU784" not in codes(desired(K4200, P100, V100, selections=selections))
    assert "GPU784" not in codes(desired(K4200, P100, V100, selections=selections, placement="off", mixed=True))


@pytest.mark.parametrize(
    ("placement", "memory", "expected"),
    [("off", 8, ["GPU302"]), ("report", 8, ["GPU302"]), ("schedule", 8, []), ("off", 4, [])],
)
def test_a_card_of_the_same_ids_that_is_not_selected_is_refused_without_placement(
    placement: str, memory: int, expected: list[str]
) -> None:
    match = '{vendor: "10de", product: "11b4", addresses: ["0000:%s:00.0"]}, alias: k4200'
    models = [
        f"{name}: {{match: {match % bus}, memory: {size}GiB}}"
        for name, bus, size in (("large", 84, 8), ("small", 88, 4))
    ]
    selection = f"{{min_memory: {memory}GiB}}"
    config = wanted(
        parse_spec(
            f"version: 1\nmodels: {{{', '.join(models)}}}\nhosts: {{'*': [large, small]}}\n"
            f"nova: {{release: '2025.2', placement: {placement}, class_by: pool}}\n"
            f"flavors: {{f: {{gpu: {selection}, vcpus: 1, ram: 512, disk: 1}}}}\n",
            "spec",
        ),
        [host("k4200-prepared")],
        release=release("2025.2"),
    )
    assert [code for code in codes(config) if code == "GPU302"] == expected


@pytest.mark.parametrize(("name", "missing"), [("stein", ["tenancy"]), ("train", []), ("2025.2", [])])
def test_isolation_is_refused_with_releases_that_lack_the_option(name: str, missing: list[str]) -> None:
    """It was rendered, and nova-scheduler ignored it."""
    text = f"version: 1\nmodels: {{{K4200}}}\nhosts: {{'*': [k4200]}}\nnova: {{release: '{name}'}}\n"
    spec = parse_spec(f"{text}tenancy: {{aggregates: {{gpu: {{}}}}}}\n", "spec")
    found = wanted(spec, [host("k4200-prepared")], release=release(name)).findings
    assert [each.place for each in found if each.code == "GPU305"] == missing
