"""What the status of a migration means: a device is held until Nova treats the migration as finished."""

from __future__ import annotations

import pytest

from gpustack.novadb.model import ComputeNode, Migration, count, parsed


@pytest.mark.parametrize(("value", "number"), [(0, 0), (3, 3), ("3", 3), (3.0, 3)])
def test_numbers_of_devices(value: object, number: int) -> None:
    assert count(value) == number


@pytest.mark.parametrize("value", [-1, True, False, 1.5, "x", None, [], float("inf"), float("nan")])
def test_what_is_no_number_of_devices(value: object) -> None:
    with pytest.raises(ValueError, match="no number of devices"):
        count(value)


def test_documents() -> None:
    assert parsed('[{"count": 1}]') == [{"count": 1}]
    for text in ("{", "[" * 100_000):
        with pytest.raises(ValueError, match=r"nested too deeply|Expecting"):
            parsed(text)


def migration(status: str | None, source: str | None = "gpu01", dest: str | None = "GPU02") -> Migration:
    return Migration(
        id=1,
        instance_uuid="vm",
        source_compute=source,
        source_node=source,
        dest_compute=dest,
        dest_node=dest,
        status=status,
        migration_type="migration",
        cross_cell_move=False,
        updated_at=None,
    )


@pytest.mark.parametrize(
    ("status", "over", "in_flight", "known"),
    [
        *(
            (status, True, False, True)
            for status in ("confirmed", "reverted", "failed", "completed", "cancelled", "done")
        ),
        ("error", False, False, True),
        ("finished", False, True, True),
        ("running (post-copy)", False, True, True),
        ("of a later Nova", False, True, False),
        (None, False, True, False),
    ],
)
def test_a_migration_is_over_only_with_a_status_that_nova_treats_so(
    status: str | None, over: bool, in_flight: bool, known: bool
) -> None:
    of = migration(status)
    assert (of.over, of.in_flight, of.known) == (over, in_flight, known)


def test_the_ends_of_a_migration_are_named_once() -> None:
    assert migration("error").ends == ("gpu01", "GPU02")
    assert migration("error", dest="gpu01").ends == ("gpu01",)
    assert migration("error", source=None).ends == ("GPU02",)


@pytest.mark.parametrize(("host", "touched"), [("gpu01", True), ("gpu02", True), ("gpu03", False)])
def test_hosts_are_compared_without_regard_to_case(host: str, touched: bool) -> None:
    fields = {"id": 1, "uuid": "u", "host": host, "hypervisor_hostname": host, "deleted": 0}
    node = ComputeNode(**{**dict.fromkeys(ComputeNode.__dataclass_fields__), **fields})  # type: ignore[arg-type]
    assert migration("error").touches(node) is touched
