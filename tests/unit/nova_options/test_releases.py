"""The table of releases: words, order, and what must be true of every row."""

import pytest

from gpustack.errors import UsageError
from gpustack.nova_options import releases
from gpustack.nova_options.releases import release


@pytest.mark.parametrize(
    ("word", "major"),
    [("2025.2", 32), ("Flamingo", 32), ("32", 32), ("32.2.1", 32), ("yoga", 25), ("zed", 26), ("2022.2", 26)],
)
def test_a_release_has_many_names(word, major):
    assert release(word).major == major


def test_an_unknown_release_is_reported_with_a_suggestion():
    with pytest.raises(UsageError, match="did you mean yoga"):
        release("yogi")


def test_old_names_go_when_nova_drops_them():
    filters = {r.name: next(o for o in releases.options(r) if o.name == "enabled_filters") for r in releases.releases()}
    assert filters["wallaby"].old_names == ("DEFAULT/scheduler_default_filters",)
    assert filters["xena"].old_names == ()


def test_every_release_has_one_list_of_devices_and_default_filters():
    for known in releases.releases():
        assert releases.device_spec_option(known).known_to(known)
        assert "PciPassthroughFilter" not in releases.default_filters(known)
    majors = [known.major for known in releases.releases()]
    assert majors == list(range(15, 35))


def test_every_row_names_its_source():
    for rows in (releases.all_options(), releases.keys("alias").values(), releases.keys("device_spec").values()):
        assert all(row.source for row in rows)
