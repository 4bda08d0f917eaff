"""Aggregates: the projects and traits in their metadata, and the values that filters see."""

from gpustack.nova_options.aggregates import Aggregate, metadata_of


def aggregate(*hosts: str, **metadata: str) -> Aggregate:
    return Aggregate(name="gpu", hosts=frozenset(hosts), metadata=metadata)


def test_projects_come_from_each_key_with_the_prefix() -> None:
    entry = aggregate(filter_tenant_id="a, b", filter_tenant_id2="c", filter="d")
    assert entry.projects == {"a", "b", "c"}
    assert not aggregate().projects


def test_only_required_traits_count() -> None:
    metadata = {"trait:CUSTOM_GPU": "required", "trait:HW_X": "forbidden", "CUSTOM_Y": "required"}
    assert aggregate(**metadata).traits == {"CUSTOM_GPU"}


def test_hosts_are_compared_like_other_names() -> None:
    assert aggregate("GPU01.example.org").has("gpu01.example.org")
    assert not aggregate("gpu01.example.org").has("gpu02.example.org")


def test_filters_see_the_values_of_all_aggregates_of_a_host() -> None:
    aggregates = [aggregate("gpu01", zone="a", ssd="yes"), aggregate("gpu01", zone="b,c"), aggregate("gpu02", zone="d")]
    assert metadata_of("gpu01", aggregates) == {"zone": {"a", "b", "c"}, "ssd": {"yes"}}
    assert metadata_of("gpu03", aggregates) == {}
    one = aggregate("gpu01", max_instances_per_host="1,3")
    assert metadata_of("gpu01", [one]) == {"max_instances_per_host": {"1,3"}}, "Nova reads no number in it"
