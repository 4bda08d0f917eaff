"""Requests to Glance and its answers. The cloud is a stand-in; tests/nova/embedded has a real one."""

from __future__ import annotations

import pytest

from gpustack.base.errors import CloudError
from gpustack.cloud.image import ImageCloud, parsed
from support.fleet_cloud import StandIn

LISTING = "image /images?visibility=all&limit=1000"
ENTRY = {
    "id": "1",
    "name": None,
    "status": "queued",
    "visibility": "shared",
    "min_disk": 3,
    "size": None,
    "hw_machine_type": "q35",
    "tags": ["a"],
    "os_hidden": False,
}


def test_all_pages_are_read() -> None:
    cloud = StandIn({LISTING: (200, {"images": [ENTRY], "next": "/v2/images?marker=1"})})
    cloud.answers[f"{LISTING}&marker=1"] = (200, {"images": [{**ENTRY, "id": "2"}]})
    images = ImageCloud(cloud.connection).images()
    assert [image.id for image in images] == ["1", "2"]
    assert (images[0].name, images[0].min_disk, images[0].size) == ("", 3, 0)
    assert images[0].properties == {"hw_machine_type": "q35"}
    assert cloud.requests == [LISTING, f"{LISTING}&marker=1"]


def test_images_that_no_list_has_are_read_by_their_ids() -> None:
    hidden, absent = "6f9619ff-8b86-4011-b42d-00cf4fc964ff", "6f9619ff-8b86-4011-b42d-00cf4fc964f0"
    answers = {LISTING: (200, {"images": [ENTRY]}), f"image /images/{hidden}": (200, {**ENTRY, "id": hidden})}
    cloud = StandIn({**answers})
    images = ImageCloud(cloud.connection).images([hidden, "1", "debian*", absent])
    assert [image.id for image in images] == ["1", hidden]
    assert cloud.requests == [LISTING, f"image /images/{absent}", f"image /images/{hidden}"]


@pytest.mark.parametrize("answer", [{}, {"images": [{}]}, {"images": 5}, []])
def test_an_answer_that_is_not_from_glance_is_an_error(answer: object) -> None:
    with pytest.raises(CloudError, match="not as the API documents it"):
        ImageCloud(StandIn({LISTING: (200, answer)}).connection).images()


def test_a_refusal_has_the_reason() -> None:
    with pytest.raises(CloudError, match="can't list images: HTTP 403"):
        ImageCloud(StandIn({LISTING: (403, "forbidden")}).connection).images()


def test_a_change_is_a_patch_of_the_image() -> None:
    before = {"old": "1", "gone": "2", "a/b~c": None}
    cloud = StandIn({"image PATCH /images/a%2Fb": (200, {})})
    ImageCloud(cloud.connection).change("a/b", "windows", before, {"old": "3", "gone": None, "a/b~c": "4"})
    assert cloud.requests == ["image PATCH /images/a%2Fb"]
    assert cloud.written == [
        [
            {"op": "replace", "path": "/old", "value": "3"},
            {"op": "remove", "path": "/gone"},
            {"op": "add", "path": "/a~1b~0c", "value": "4"},
        ]
    ]
    with pytest.raises(CloudError, match="can't change windows"):
        ImageCloud(cloud.connection).change("other", "windows", before, {"old": "3"})


def test_each_field_of_an_image() -> None:
    entry = {"id": "i", "name": "debian", "status": "active", "visibility": "public", "owner": "p1", "min_disk": 1}
    found = parsed({**entry, "min_ram": 2, "size": 3, "virtual_size": 4, "os_distro": "debian", "os_hidden": False})
    assert (found.id, found.name, found.status, found.visibility, found.owner) == (
        "i",
        "debian",
        "active",
        "public",
        "p1",
    )
    assert (found.min_disk, found.min_ram, found.size, found.virtual_size) == (1, 2, 3, 4)
    assert found.properties == {"os_distro": "debian"}


def test_an_image_without_data_has_no_size() -> None:
    fields = ("name", "visibility", "owner", "min_disk", "min_ram", "size", "virtual_size")
    found = parsed({"id": "i", "status": "queued", **dict.fromkeys(fields)})
    assert (found.name, found.visibility, found.owner) == ("", "", "")
    assert (found.min_disk, found.min_ram, found.size, found.virtual_size) == (0, 0, 0, 0)
