"""Which images are for which flavors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from gpustack.offer.image.model import FlavorNeeds, Image, Pair


def is_named(image: Image, names: Iterable[str]) -> bool:
    """Whether one of these names, patterns or ids means the image."""
    return any(name in (image.id, image.name) or fnmatchcase(image.name, name) for name in names)


def pairs(
    images: Sequence[Image], flavors: Sequence[FlavorNeeds], names: Sequence[str] = ()
) -> tuple[tuple[Pair, ...], tuple[str, ...]]:
    """Pair images with flavors.

    :param names: names, patterns or ids of the images to check. Without names, they are the images of the flavors; if
        these name none, they are all active public images.
    :returns: the pairs by name of the image, and the names that mean no image.
    """
    asked = tuple(names) or tuple(dict.fromkeys(name for flavor in flavors for name in flavor.images))
    chosen = [
        image
        for image in images
        if (
            is_named(image, asked)
            if asked
            else image.visibility == "public"
            and image.status == "active"
            and image.is_bootable
            and not image.is_snapshot
        )
    ]
    missing = tuple(name for name in asked if not any(is_named(image, (name,)) for image in images))
    order = sorted(chosen, key=lambda image: (image.name, image.id))
    return tuple(Pair(image=image, flavors=flavors_of(image, flavors)) for image in order), missing


def flavors_of(image: Image, flavors: Sequence[FlavorNeeds]) -> tuple[FlavorNeeds, ...]:
    """The flavors that name an image; else those that name no images and whose guest the image resembles."""
    naming = tuple(flavor for flavor in flavors if is_named(image, flavor.images))
    others = tuple(flavor for flavor in flavors if not flavor.images)
    alike = tuple(flavor for flavor in others if flavor.windows == image.resembles_windows)
    # A flavor that does not declare Windows may be for any guest.
    return naming or alike or (others if image.resembles_windows else ())
