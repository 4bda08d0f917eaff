"""Which images are checked for which flavors."""

from __future__ import annotations

from gpustack.offer.image.model import FlavorNeeds, Image
from gpustack.offer.image.select import pairs


def flavor(name: str, *images: str, windows: bool = False) -> FlavorNeeds:
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


def test_names_of_the_command_line_replace_those_of_flavors() -> None:
    flavors = [flavor("a", "deb*"), flavor("c")]
    assert paired([LINUX, image("off", status="queued")], flavors, "off", "gone") == {"off": ["c"]}
    assert pairs([LINUX], flavors, ("off", "gone", "debian"))[1] == ("off", "gone")
