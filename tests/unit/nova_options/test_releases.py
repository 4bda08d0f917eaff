"""The table of releases: words, order, and what must be true of every row."""

import pytest

from gpustack.base.errors import UsageError
from gpustack.nova_options import releases
from gpustack.nova_options.releases import release


@pytest.mark.parametrize(
    ("name", "major"),
    [("2025.2", 32), ("Flamingo", 32), ("32", 32), ("32.2.1", 32), ("yoga", 25), ("zed", 26), ("2022.2", 26)],
)
def test_a_release_has_many_names(name, major):
    assert release(name).major == major


def test_an_unknown_release_is_reported_with_a_suggestion():
    with pytest.raises(UsageError, match="did you mean yoga"):
        release("yogi")


def test_old_names_go_when_nova_drops_them():
    filters = {r.name: next(o for o in releases.options(r) if o.name == "enabled_filters") for r in releases.releases()}
    assert filters["wallaby"].old_names == ("DEFAULT/scheduler_default_filters",)
    assert filters["xena"].old_names == ()


def test_every_release_has_one_list_of_devices_and_default_filters():
    for nova_release in releases.releases():
        assert releases.device_spec_option(nova_release).known_to(nova_release)
        assert "PciPassthroughFilter" not in releases.default_filters(nova_release)
    majors = [nova_release.major for nova_release in releases.releases()]
    assert majors == list(range(15, 35))


def test_every_row_names_its_source():
    for rows in (releases.all_options(), releases.keys("alias").values(), releases.keys("device_spec").values()):
        assert all(row.source for row in rows)
