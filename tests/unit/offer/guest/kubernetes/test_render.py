"""Each form of ``gpustack guest render`` against the schemas of its reader, which refuse every misspelt key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from gpustack.offer.guest.kubernetes.render import FORMS, render
from gpustack.spec.load import parse_spec
from support.kubernetes import schemas, unnoticed, validate

SPEC = """
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}}
  p100: {match: {vendor: "10de", product: "15f8"}}
  h100: {match: {vendor: "10de", product: "2331", subsystem_vendor: "10de", subsystem_product: "1626"}}
  mi300x: {match: {vendor: "1002", product: "74a1"}}
  flex: {match: {vendor: "8086", product: "56c0"}}
  b200: {match: {vendor: "10de", product: "2901"}}
hosts: {"gpu[01:09]": [k4200, p100, h100, mi300x, flex, b200]}
flavors:
  "g1.p100.{count}": {model: p100, count: [1, 2], per_gpu: {vcpus: 8, ram: 32GiB, disk: 40GiB}}
  "g1.h100.{count}": {model: h100, count: 8, vcpus: 64, ram: 512GiB, disk: 0}
  g1.any: {gpu: {min_memory: 16GiB, generation: Pascal}, vcpus: 8, ram: 32GiB, disk: 40GiB}
  g1.mixed: {gpus: {p100: 1, h100: 1}, vcpus: 8, ram: 32GiB, disk: 40GiB}
  g1.mi300x: {model: mi300x, vcpus: 8, ram: 32GiB, disk: 40GiB}
  g1.b200: {model: b200, vcpus: 8, ram: 32GiB, disk: 40GiB}
  g1.flex: {model: flex, vcpus: 8, ram: 32GiB, disk: 40GiB}
"""
VALUES = {"capi-helm": "values of openstack-cluster", "operator-values": "values of gpu-operator"}
"""The excerpt for forms without a kind."""


def documents(form: str) -> Iterator[tuple[dict[str, Any], str | None]]:
    """What a reader of YAML gets, each with its excerpt; the objects in values are documents of their own."""
    for document in yaml.safe_load_all(render(parse_spec(SPEC, "spec.yaml"), form).text):
        operator = document.get("addons", {}).get("nvidiaGPUOperator", {}).get("release", {}).get("values", document)
        yield from ((extra, None) for extra in operator.pop("extraObjects", ()))
        yield document, VALUES.get(form)


@pytest.mark.parametrize("form", FORMS)
def test_documents_conform_to_their_schemas(form):
    assert [validate(document, excerpt) for document, excerpt in documents(form)]


@pytest.mark.parametrize("form", FORMS)
def test_schemas_refuse_every_misspelt_key(form):
    for document, excerpt in documents(form):
        assert unnoticed(document, excerpt) == [], document.get("kind")


def test_each_excerpt_names_its_source():
    assert {name for name, schema in schemas().items() if len(schema.get("x-source", "")) < 30} == set()


def test_selected_flavors_only_are_rendered():
    names = [
        group["name"]
        for document in yaml.safe_load_all(
            render(parse_spec(SPEC, "spec.yaml"), "capi-helm", flavors=["g1.p100.2"]).text
        )
        for group in document["nodeGroups"]
    ]
    assert names == ["g1-p100-2"]


@pytest.mark.parametrize("form", FORMS)
def test_a_spec_without_usable_flavors_renders_nothing(form):
    unknown = SPEC.replace('"1002"', '"1a03"').partition("flavors:")[0]
    spec = parse_spec(f"{unknown}flavors: {{a: {{model: mi300x, vcpus: 1, ram: 1, disk: 1}}}}", "spec.yaml")
    rendering = render(spec, form)
    assert (rendering.text, [entry.code for entry in rendering.findings]) == ("", ["GPU866"])
