"""Extra specs: the values of aliases, the traits, and what gives an instance NUMA nodes."""

import pytest

from gpustack.spec.extra_specs import alias_names, alias_value, has_numa_nodes, parse_alias, required_traits


def test_an_alias_value_is_read_as_it_is_written() -> None:
    assert alias_value({"K4200": 1, "P100": 2}) == "K4200:1,P100:2"
    assert parse_alias("K4200:1,P100:2") == {"K4200": 1, "P100": 2}


@pytest.mark.parametrize(
    ("value", "counts", "names"),
    [
        (" a : 1 , b:2", {"a": 1, "b": 2}, ("a", "b")),
        ("a:1,a:2", {"a": 3}, ("a", "a")),
        ("a,b:x,c:1:1", {}, ("a", "b", "c")),
        ("a:+1,b:0_1,c:-1", {"a": 1, "b": 1, "c": 0}, ("a", "b", "c")),  # Python reads these numbers
        (":1,,", {}, ()),
        ("", {}, ()),
    ],
)
def test_malformed_parts_have_a_name_and_no_count(value: str, counts: dict[str, int], names: tuple[str, ...]) -> None:
    assert parse_alias(value) == counts
    assert alias_names(value) == names


@pytest.mark.parametrize(
    ("specs", "has_nodes"),
    [
        ({}, False),
        ({"hw:cpu_policy": "shared"}, False),
        ({"hw:cpu_policy": "dedicated"}, True),
        ({"hw:cpu_policy": "mixed"}, True),
        ({"hw:numa_nodes": "1"}, True),
        ({"hw:mem_page_size": "any"}, True),
        ({"hw:pmem": "1GB"}, True),
    ],
)
def test_extra_specs_give_numa_nodes(specs: dict[str, str], has_nodes: bool) -> None:
    assert has_numa_nodes(specs) is has_nodes


def test_only_required_traits_are_listed() -> None:
    specs = {"trait:CUSTOM_A": "required", "trait:CUSTOM_B": "forbidden", "CUSTOM_C": "required"}
    assert required_traits(specs) == {"CUSTOM_A"}
