"""The GPUs that flavors request, by model and by alias."""

from gpustack.spec.load import parse_spec
from gpustack.spec.requests import by_alias, by_model, models_of, requests, restricted

SPEC = parse_spec(
    """\
version: 1
models:
  small: {match: {vendor: "10de", product: "11b4"}, alias: gpu}
  twin: {match: {vendor: "10de", product: "11b5"}, alias: gpu}
  large: {match: {vendor: "10de", product: "15f8"}}
hosts: {gpu01: [small, twin, large]}
nova: {release: "2025.2", placement: schedule, class_by: pool}
flavors:
  "g.{count}": {model: small, count: [1, 2], vcpus: 4, ram: 8GiB, disk: 40GiB, access: [research]}
  mixed: {gpus: {small: 1, twin: 2, large: 1}, vcpus: 4, ram: 8GiB, disk: 40GiB}
  any: {gpu: {min_memory: 4GiB}, count: 3, vcpus: 4, ram: 8GiB, disk: 40GiB}
""",
    "test",
)
COUNTED, MIXED, ANY = SPEC.flavors.values()


def test_an_entry_makes_a_flavor_for_each_count() -> None:
    assert [*by_model(COUNTED)] == [(1, {"small": 1}), (2, {"small": 2})]
    assert [*by_model(MIXED)] == [(4, {"small": 1, "twin": 2, "large": 1})]
    ((count, selected),) = by_model(ANY)
    assert (count, [*selected.values()]) == (3, [3])


def test_models_with_one_alias_are_added() -> None:
    assert by_alias(SPEC, {"small": 1, "twin": 2, "large": 1}) == {"gpu": 3, "large": 1}
    assert [*requests(SPEC)][:3] == [{"gpu": 1}, {"gpu": 2}, {"gpu": 3, "large": 1}]


def test_restricted_flavors_have_their_names_in_the_cloud() -> None:
    assert restricted(SPEC) == ["g.1", "g.2"]


def test_a_flavor_can_get_each_model_of_its_alias() -> None:
    assert models_of(SPEC, COUNTED) == ("small", "twin")
    assert models_of(SPEC, MIXED) == ("small", "twin", "large")
