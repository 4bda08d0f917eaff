"""Names of resource classes and traits, as Nova makes them of configuration."""

from __future__ import annotations

import pytest

from gpustack.nova_options.pci_values import EntryError, alias_of, reported_class, resource_class, specs_of, traits


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpu", "CUSTOM_GPU"),
        ("CUSTOM_GPU", "CUSTOM_GPU"),
        ("pgpu", "PGPU"),
        ("numa_core", "NUMA_CORE"),
        ("my gpu-2", "CUSTOM_MY_GPU_2"),
        ("custom_a-b", "CUSTOM_A-B"),  # Nova leaves names with the prefix alone, and Placement refuses this one
        ("", None),
        (None, None),
    ],
)
def test_names_are_normalised_as_nova_does(name, expected):
    assert resource_class(name) == expected


def test_a_class_without_a_name_is_made_of_the_ids():
    assert reported_class(None, "10de", "1db4") == "CUSTOM_PCI_10DE_1DB4"
    assert reported_class("gpu", "*", "1db4") == "CUSTOM_GPU"
    assert reported_class(None, "10de", "*") is None


@pytest.mark.parametrize(
    ("written", "normalised"),
    [
        ("fast,HW_GPU_API_VULKAN", {"CUSTOM_FAST", "HW_GPU_API_VULKAN"}),
        ("A, B", {"CUSTOM_A", "CUSTOM__B"}),
        ("custom_a,gpu-1", {"CUSTOM_A", "CUSTOM_GPU_1"}),
        (None, set()),
    ],
)
def test_traits_are_those_that_nova_reports(written, normalised):
    assert traits({"traits": written}) == normalised


ONE, OTHER = '{"vendor_id": "10de", "name": "a"}', '{"vendor_id": "10de", "name": "b"}'


@pytest.mark.parametrize(
    ("read", "text", "cause"),
    [
        (alias_of, f"{ONE}, {OTHER}", "several objects are on one line"),
        (alias_of, f"{ONE} {OTHER}", "several objects are on one line"),
        (alias_of, f"[{ONE}, {OTHER}]", "not a list; a deployment tool that gets a list writes it as one line"),
        (alias_of, str([{"name": "a"}]), "a list of Python as text"),
        (specs_of, str({"vendor_id": "10de", "managed": True}), "a dict of Python as text"),
        (specs_of, '{"vendor_id": "10de", "remote_managed": True}', "JSON writes true, false and null"),
        (specs_of, '{"vendor_id": "10de"} # A100', "a comment needs a line of its own"),
        (alias_of, f"{ONE} ; A100", "a comment needs a line of its own"),
        (specs_of, f"[\n{ONE},\n# the second\n{OTHER}\n]", "a comment that begins with a blank"),
        (specs_of, '"{\\"vendor_id\\": \\"10de\\"}"', "not a text; it is quoted twice"),
        (specs_of, '["{\\"vendor_id\\": \\"10de\\"}"]', "not a text; it is quoted twice"),
        (specs_of, '{\\"vendor_id\\": \\"10de\\"}', "its quotes are escaped"),
        (specs_of, "{'vendor_id': '10de'", "single quotes"),
        (specs_of, '{"vendor_id": "10de",}', "a comma before the end"),
        (specs_of, '{"vendor_id": "10de", color: "red",}', "a comma before the end"),
        (specs_of, "{\u201cvendor_id\u201d: 1}", "typographic quotes"),
        (specs_of, '{"vendor_id":\u00a0"10de"}', "no-break space"),
    ],
)
def test_a_wrong_shape_is_reported_with_its_cause(read, text, cause):
    with pytest.raises(EntryError) as refused:
        read(text)
    assert cause in refused.value.finding("nova.conf:2", "alias").message


@pytest.mark.parametrize("text", ["[" * 100_000, "(" * 5000, "9" * 5000, "\0", "", "[]", "null", "{{ x }}"])
def test_a_hostile_value_has_a_finding_too(text):
    with pytest.raises(EntryError) as refused:
        alias_of(text)
    assert refused.value.finding("nova.conf:2", "alias").message
