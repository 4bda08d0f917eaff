"""Entries by a key."""

from gpustack.base.by_key import by_key


def test_keys_and_entries_keep_their_order() -> None:
    groups = by_key([("b", 3), ("a", 1), ("b", 2)])
    assert list(groups.items()) == [("b", [3, 2]), ("a", [1])]
