"""What flavors of a spec need of images."""

from __future__ import annotations

import pytest

from gpustack.cloud.image import Image
from gpustack.hosts.facts.store import parse_host
from gpustack.nova_options.releases import release
from gpustack.offer.image.model import FlavorNeeds
from gpustack.offer.image.needs import needs_of, pairs
from gpustack.spec.load import parse_spec

SPEC = """
version: 1
models:
  gtx: {match: {vendor: "10de", product: "1b80"}, memory: 8GiB}
  mi210: {match: {vendor: "1002", product: "740f"}, memory: 64GiB}
hosts: {gpu1: [gtx], gpu2: [mi210]}
nova: {release: "2025.2", placement: schedule, class_by: pool}
flavors:
  "any.{count}": {gpu: {min_memory: 8GiB}, count: [1, 2], per_gpu: {vcpus: 4, ram: 8GiB, disk: 20GiB}}
  small: {model: gtx, vcpus: 4, per_gpu: {ram: auto}, disk: 10, hide_hypervisor: true, images: ["win*"], windows: true}
"""


def host(name: str, vendor: str, product: str, architecture: str) -> dict[str, object]:
    card = {"address": "0000:81:00.0", "vendor": vendor, "product": product, "class": "030000", "iommu_group": 1}
    return {"version": 1, "hostname": name, "architecture": architecture, "pci": [card]}


def test_needs_of_counts_selections_and_options() -> None:
    one, two, small = needs_of(parse_spec(SPEC, "spec"), release("2025.2"))
    assert (one.name, two.name) == ("any.1", "any.2")
    assert (two.disk, two.ram) == (40, 16384)
    assert two.models == ("gtx", "mi210")
    assert two.vendors == {"10de", "1002"}
    assert two.hidden_from == ("gtx",)
    assert (small.disk, small.ram) == (10, None)
    assert small.windows
    assert small.hides_hypervisor
    assert not one.hides_hypervisor


def test_models_that_share_an_alias_are_models_of_the_flavor() -> None:
    shared = SPEC.replace('product: "1b80"}', 'product: "1b80"}, alias: gpu').replace(
        'product: "740f"}', 'product: "740f"}, alias: gpu'
    )
    *_, small = needs_of(parse_spec(shared, "spec"), release("2025.2"))
    assert small.models == ("gtx", "mi210")
    assert small.vendors == {"10de", "1002"}


def test_architectures_are_those_of_hosts_with_the_models() -> None:
    hosts = [
        parse_host(entry, str(entry["hostname"]))
        for entry in (host("gpu1", "10de", "1b80", "x86_64"), host("gpu2", "1002", "740f", "aarch64"))
    ]
    one, _, small = needs_of(parse_spec(SPEC, "spec"), release("2025.2"), hosts)
    assert one.architectures == {"x86_64", "aarch64"}
    assert small.architectures == {"x86_64"}


@pytest.mark.parametrize(
    ("models", "hosts", "expected"),
    [
        ({"gh200": "2342"}, [], {"aarch64"}),  # a superchip
        ({"gh200": "2342", "p100": "15f8"}, [], set()),
        ({"gh200": "2342", "odd": "ffff"}, [], set()),
        ({"p100": "15f8"}, [], set()),
        ({"gh200": "2342"}, ["x86_64"], {"x86_64"}),  # as the host has it
        ({"gh200": "2342", "p100": "15f8"}, ["aarch64"], {"aarch64"}),
    ],
)
def test_superchips_are_on_arm_hosts(models: dict[str, str], hosts: list[str], expected: set[str]) -> None:
    listed = ", ".join(f'{name}: {{match: {{vendor: "10de", product: "{of}"}}}}' for name, of in models.items())
    gpus = ", ".join(f"{name}: 1" for name in models)
    text = f"version: 1\nmodels: {{{listed}}}\nhosts: {{gpu1: [{', '.join(models)}]}}\n"
    flavors = f"flavors: {{f: {{gpus: {{{gpus}}}, vcpus: 1, ram: 1, disk: 1}}}}\n"
    known = [parse_host(host("gpu1", "10de", "2342", architecture), "gpu1") for architecture in hosts]
    (found,) = needs_of(parse_spec(text + flavors, "spec"), release("2025.2"), known)
    assert found.architectures == expected


def test_branches_are_those_of_complete_cards() -> None:
    """Of vGPUs, the driver of the hosts decides."""
    models = (
        'a16: {match: {vendor: "10de", product: "25b6"}, vgpu: {type: A16-8Q}},'
        ' k4200: {match: {vendor: "10de", product: "11b4"}}, gh200: {match: {vendor: "10de", product: "2342"}}'
    )
    flavors = ", ".join(f"{name}: {{model: {name}, vcpus: 1, ram: 1, disk: 1}}" for name in ("a16", "k4200", "gh200"))
    text = f"version: 1\nmodels: {{{models}}}\nhosts: {{gpu1: [a16, k4200, gh200]}}\nflavors: {{{flavors}}}\n"
    shared, old, new = needs_of(parse_spec(text, "spec"), release("2025.2"))
    assert (shared.vgpus, shared.first_branches, shared.last_branches) == (("a16",), {}, {})
    assert (old.vgpus, list(old.last_branches.values())) == ((), [470])
    assert (list(new.first_branches.values()), new.last_branches) == ([535], {})


def flavor(name: str, *images: str, windows: bool | None = None) -> FlavorNeeds:
    return FlavorNeeds(
        name=name, models=("p100",), vendors=frozenset(("10de",)), disk=40, images=images, windows=windows
    )


def image(name: str, status: str = "active", visibility: str = "public", **properties: str) -> Image:
    return Image(id=f"id-{name}", name=name, status=status, visibility=visibility, properties=properties)


def paired(images: list[Image], flavors: list[FlavorNeeds], *names: str) -> dict[str, list[str]]:
    result, _ = pairs(images, flavors, names)
    return {pair.image.name: [needs.name for needs in pair.flavors] for pair in result}


LINUX, WINDOWS = image("debian"), image("w", os_type="windows")


def test_flavors_name_their_images() -> None:
    flavors = [flavor("a", "deb*"), flavor("b", "id-w"), flavor("c")]
    assert paired([LINUX, WINDOWS, image("other")], flavors) == {"debian": ["a"], "w": ["b"]}


def test_brackets_in_a_name_are_no_pattern() -> None:
    assert paired([image("gpu [1]")], [flavor("a", "gpu [1]")]) == {"gpu [1]": ["a"]}


def test_without_names_public_active_images_are_checked() -> None:
    others = [
        image("off", status="deactivated"),
        image("mine", visibility="private"),
        image("snap", image_type="snapshot"),
        image("vmlinuz", disk_format="aki"),
    ]
    assert paired([LINUX, *others], [flavor("a")]) == {"debian": ["a"]}


def test_an_image_is_for_the_guest_that_it_resembles() -> None:
    flavors = [flavor("l"), flavor("w", windows=True)]
    assert paired([LINUX, WINDOWS], flavors) == {"debian": ["l"], "w": ["w"]}
    assert paired([LINUX, WINDOWS], [flavor("l")]) == {"debian": ["l"], "w": ["l"]}
    assert paired([LINUX], [flavor("w", windows=True)]) == {"debian": []}
    assert paired([LINUX, WINDOWS], [flavor("l", windows=False)]) == {"debian": ["l"], "w": []}


@pytest.mark.parametrize(
    ("declared", "expected"),
    [("", None), (", guest: linux", False), (", guest: windows", True), (", windows: true", True)],
)
def test_a_flavor_may_declare_its_guest(declared: str, expected: bool | None) -> None:
    models = 'models: {p100: {match: {vendor: "10de", product: "15f8"}}}\nhosts: {gpu1: [p100]}\n'
    text = f"version: 1\n{models}flavors: {{f: {{model: p100, vcpus: 1, ram: 1, disk: 1{declared}}}}}\n"
    (found,) = needs_of(parse_spec(text, "spec"), release("2025.2"))
    assert found.windows is expected


def test_names_of_the_command_line_replace_those_of_flavors() -> None:
    flavors = [flavor("a", "deb*"), flavor("c")]
    assert paired([LINUX, image("off", status="queued")], flavors, "off", "gone") == {"off": ["c"]}
    assert pairs([LINUX], flavors, ("off", "gone", "debian"))[1] == ("off", "gone")


def test_names_mean_public_and_own_images_only() -> None:
    own, public, foreign, shared = (
        Image(id=owner, name="ubuntu", owner=owner, visibility=visibility)
        for owner, visibility in (("me", "private"), ("p1", "public"), ("p2", "private"), ("p3", "shared"))
    )
    found, missing = pairs([own, public, foreign, shared], (), ["ubun*", "ubuntu"], "me")
    assert ([pair.image for pair in found], missing) == ([own, public], ())
    found, missing = pairs([own, public, foreign, shared], (), ["p2"], "me")
    assert ([pair.image for pair in found], missing) == ([foreign], ())
    found, missing = pairs([foreign], (), ["ubuntu"], "")
    assert (found, missing) == ((), ("ubuntu",))
