"""GPUs by attribute: what the catalogue and the spec say of models, the traits of cards, and the names of aliases."""

from __future__ import annotations

import pytest

from gpustack.spec import attributes
from gpustack.spec.flavors import THRESHOLDS, Attributes
from gpustack.spec.load import examine, parse_spec
from gpustack.spec.model import Spec

MODELS = """\
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}, traits: [CUSTOM_LAB]}
  p100: {match: {vendor: "10de", product: "15f8"}}
  a100: {match: {vendor: "10de", product: "20b2"}, traits: [custom_lab]}
  unknown: {match: {vendor: "10de", product: "ffff"}}
  declared: {match: {vendor: "10de", product: "fffe"}, memory: 24GiB}
hosts: {"*": [k4200, p100, a100, unknown, declared]}
nova: {release: "2025.2", placement: schedule, class_by: pool}
"""


def spec(*selections: str, text: str = MODELS) -> Spec:
    flavors = "".join(
        f"  f{number}: {{gpu: {selection}, vcpus: 1, ram: 512, disk: 1}}\n"
        for number, selection in enumerate(selections)
    )
    return parse_spec(f"{text}flavors:\n{flavors}" if flavors else text, "spec")


@pytest.mark.parametrize(
    ("selection", "alias", "models"),
    [
        ("{}", "any-gpu", ("k4200", "p100", "a100", "unknown", "declared")),
        ("{min_memory: 4GiB}", "any-4gb", ("k4200", "p100", "a100", "declared")),
        ("{min_memory: 16GiB}", "any-16gb", ("p100", "a100", "declared")),
        ("{min_memory: 24}", "any-24gb", ("a100", "declared")),
        ("{min_memory: 96GiB}", "any-96gb", ()),
        ("{generation: Pascal}", "any-pascal", ("p100",)),
        ("{min_memory: 16GiB, generation: ampere}", "any-16gb-ampere", ("a100",)),
        ("{traits: [CUSTOM_LAB]}", "any-custom_lab", ("k4200", "a100")),
        ("{min_memory: 8GiB, traits: [CUSTOM_LAB]}", "any-8gb-custom_lab", ("a100",)),
    ],
)
def test_models_with_all_attributes_are_selected(selection: str, alias: str, models: tuple[str, ...]) -> None:
    document = spec(selection)
    assert document.selected == {alias: models}
    for name in document.models:
        assert (alias in document.aliases_of(name)) is (name in models)
        # What an alias requires, exactly its models' cards have.
        wanted = {trait.upper() for trait in attributes.required(document.selections[alias])}
        assert (wanted <= {trait.upper() for trait in document.traits_of(name)}) is (name in models)


def test_cards_have_a_trait_for_each_threshold_up_to_their_memory() -> None:
    traits = spec().traits_of("declared")
    assert traits[0] == "CUSTOM_GPU_MODEL_DECLARED"
    assert [f"CUSTOM_GPU_MEM_GE_{size}GB" for size in THRESHOLDS if size <= 24] == list(traits[1:])


def test_the_least_memory_of_an_id_with_several_sizes_counts() -> None:
    several = next(card for card in attributes.catalogue.cards() if len(card.memory_gib) > 1 and not card.subsystems)
    text = MODELS.replace('"10de", product: "11b4"', f'"{several.vendor}", product: "{several.product}"')
    assert attributes.memory_of(spec(text=text).models["k4200"]) == min(several.memory_gib)


def test_without_selections_nothing_is_added() -> None:
    document = spec(text=MODELS.replace(", class_by: pool", ""))
    assert document.traits_of("k4200") == ("CUSTOM_LAB",)
    assert (document.resource_class_of("k4200"), document.required_traits_of("k4200")) == (None, ("CUSTOM_LAB",))


def test_one_class_needs_a_trait_for_each_alias() -> None:
    document = spec()
    assert document.resource_class_of("p100") == "CUSTOM_GPU"
    assert document.required_traits_of("p100") == ("CUSTOM_GPU_MODEL_P100",)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ("{min_memory: 10GiB}", "expected one of 4GiB, 8GiB, 12GiB"),
        ("{generation: Amper}", 'the catalogue has no generation "Amper"'),
        ("{vram: 16GiB}", "vram"),
    ],
)
def test_attributes_that_no_card_can_have_are_refused(selection: str, message: str) -> None:
    text = f"{MODELS}flavors:\n  f: {{gpu: {selection}, vcpus: 1, ram: 512, disk: 1}}\n"
    problems = [problem.message for problem in examine(text, "spec").problems]
    assert any(message in problem for problem in problems), problems


def test_a_flavor_has_either_a_model_or_attributes() -> None:
    text = f"{MODELS}flavors:\n  f: {{model: p100, gpu: {{}}, vcpus: 1, ram: 512, disk: 1}}\n"
    problems = [problem.message for problem in examine(text, "spec").problems]
    assert problems == ["expected model or gpu, each with count, or gpus"]


def test_aliases_of_attributes_are_distinct() -> None:
    selections = [
        Attributes(min_memory=size, generation=generation, traits=traits)
        for size in (None, 8, 16)
        for generation in (None, "Ampere", "Ada Lovelace")
        for traits in ((), ("CUSTOM_A",), ("CUSTOM_A", "CUSTOM_B"))
    ]
    assert len({attributes.alias_name(selection) for selection in selections}) == len(selections)
