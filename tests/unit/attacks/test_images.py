"""Another project names an image like one that the operator changes: by name, by a pattern, by an id."""

from __future__ import annotations

from fnmatch import fnmatchcase

from gpustack.cloud.image import Image, parsed
from support.attacks import attacked

OWN = "own"
NAMES = ("ubuntu", "ubuntu*", "*", "Ubuntu", "[u]buntu", "?buntu", "")
FOREIGN = [
    Image(id="i1", name=name, visibility=visibility, owner="other")
    for name in ("ubuntu", "*", "ubuntu*", "Ubuntu", "i2")
    for visibility in ("private", "shared", "community", "", "PUBLIC")
]


def meant(project: str) -> None:
    for image in FOREIGN:
        assert not image.is_meant(NAMES, project), image
        assert image.is_meant(["i1"], project)


def without_an_owner() -> None:
    """An image without a project is not that of a user without a project."""
    assert not parsed({"id": "i1", "name": "ubuntu", "status": "active", "visibility": "private"}).is_meant(NAMES, "")


test_an_attack_fails, test_an_attack_works_without_the_check = attacked(
    {
        "own project": lambda _directory, _: meant(OWN),
        "no project": lambda _directory, _: meant(""),
        "no owner": lambda _directory, _: without_an_owner(),
    },
    {
        "gpustack.cloud.image:Image": {
            "gpustack.cloud.image:Image.is_meant": lambda self, refs, _project: any(
                ref in (self.id, self.name) or fnmatchcase(self.name, ref) for ref in refs
            )
        }
    },
)


def test_the_own_and_public_images_are_meant() -> None:
    assert Image(id="i", name="ubuntu", visibility="private", owner=OWN).is_meant(["ubu*"], OWN)
