"""What a spec says about a host: by its very name, patterns adding up."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack.base.errors import UsageError
from gpustack.spec.load import parse_spec
from gpustack.spec.model import NvSwitch, Spec, hosts_of, models_for, nearby, options_for, patterns_for

MODELS = {
    "k4200": {"match": {"vendor": "10de", "product": "11b4"}},
    "m60": {"match": {"vendor": "10de", "product": "13f2"}},
    "p100": {"match": {"vendor": "10de", "product": "15f8"}},
}


def spec(hosts: dict[str, Any], **options: object) -> Spec:
    return Spec.model_validate({"version": 1, "models": MODELS, "hosts": hosts, **options})


def test_a_host_gives_the_models_of_every_pattern_that_fits_in_the_order_of_the_spec() -> None:
    parsed = spec({"gpu07": ["p100"], "gpu[01:16]": ["m60"], "*": ["k4200"]})
    assert list(models_for(parsed, "gpu07")) == ["k4200", "m60", "p100"]
    assert list(models_for(parsed, "gpu08")) == ["k4200", "m60"]
    assert list(models_for(parsed, "elsewhere")) == ["k4200"]
    assert patterns_for(parsed, "gpu07") == ("gpu[01:16]", "*", "gpu07")


def test_no_pattern_no_models() -> None:
    parsed = spec({"gpu[01:16]": ["m60"]})
    assert models_for(parsed, "gpu17") == {}
    assert patterns_for(parsed, "gpu17") == ()


@pytest.mark.parametrize("name", ["gpu01", "gpu01.other.org", "GPU01.example.org", "gpu01.example.org."])
def test_a_name_fits_letter_by_letter_only(name: str) -> None:
    parsed = spec({"gpu01.example.org": ["m60"]})
    assert models_for(parsed, "gpu01.example.org")
    assert models_for(parsed, name) == {}


def test_nearby_patterns_miss_by_the_domain_only() -> None:
    parsed = spec({"gpu[01:16].example.org": ["m60"], "gpu02": ["k4200"], "cpu01": ["k4200"]})
    assert nearby(parsed, "gpu01") == ("gpu[01:16].example.org",)
    assert nearby(parsed, "gpu02.other.org") == ("gpu[01:16].example.org", "gpu02")
    assert nearby(parsed, "gpu01.example.org") == ()
    assert nearby(parsed, "storage01") == ()


@pytest.mark.parametrize(("pattern", "name"), [("gpu01", "GPU01"), ("GPU[01:16]", "gpu02.example.org")])
def test_nearby_patterns_miss_by_the_case(pattern: str, name: str) -> None:
    assert nearby(spec({pattern: ["k4200"]}), name) == (pattern,)


def test_options_go_from_the_general_to_the_particular() -> None:
    parsed = spec(
        {
            "gpu07": {"models": ["m60"], "options": {"allow_unsafe_interrupts": True}},
            "gpu*": {"models": ["m60"], "options": {"nvswitch": "full", "allow_unsafe_interrupts": False}},
            "gpu0[1:9]": {"models": ["m60"], "options": {"nvswitch": "isolated"}},
        },
        options={"iommu_pt": False},
    )
    seven, eight, twelve = (options_for(parsed, name) for name in ("gpu07", "gpu08", "gpu12"))
    assert (seven.iommu_pt, seven.allow_unsafe_interrupts, seven.nvswitch) == (False, True, NvSwitch.ISOLATED)
    assert (eight.iommu_pt, eight.allow_unsafe_interrupts, eight.nvswitch) == (False, False, NvSwitch.ISOLATED)
    assert twelve.nvswitch is NvSwitch.FULL
    assert options_for(parsed, "elsewhere") == parsed.options


def test_a_spec_that_was_not_checked_names_what_is_missing() -> None:
    with pytest.raises(KeyError, match="k420"):
        models_for(spec({"gpu01": ["k420"]}), "gpu01")


def test_plain_names_are_looked_up_and_not_tried_one_by_one() -> None:
    """Ten thousand names of their own leave no pattern to try; one range is one pattern to try."""
    parsed = spec({f"gpu{number:05d}": ["m60"] for number in range(10_000)} | {"r[00000:99999]": ["p100"]})
    assert not parsed.host_patterns.matching("gpu00000")
    assert [pattern.text for pattern in parsed.host_patterns.matching("r77777")] == ["r[00000:99999]"]
    assert all(list(models_for(parsed, f"gpu{number:05d}")) == ["m60"] for number in range(10_000))
    assert list(models_for(parsed, "r77777")) == ["p100"]


def test_the_hosts_of_a_spec() -> None:
    text = 'version: 1\nmodels: {m: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {"gpu[1:2]": [m], one: [m]}\n'
    assert hosts_of(parse_spec(text, "s"), "s") == ("gpu1", "gpu2", "one")
    with pytest.raises(UsageError, match="gpu\\*"):
        hosts_of(parse_spec(text.replace("one", '"gpu*"'), "s"), "s")
