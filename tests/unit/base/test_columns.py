"""Columns are found by key or title, and have values for programs and texts for people."""

import pytest

from gpustack.base.columns import Column, described, in_words, selected
from gpustack.base.errors import UsageError

COLUMNS: tuple[Column[dict[str, object]], ...] = (
    Column("host", lambda row: row["host"], "Host"),
    Column("numa_node", lambda row: row["node"], "NUMA"),
    Column("since", lambda row: row["since"], "Since (UTC)", lambda row: f"on {row['since']}"),
    Column("modules", lambda row: row["modules"]),
)
ROW = {"host": "gpu01", "node": 1, "since": "Monday", "modules": ["a", "b"]}


@pytest.mark.parametrize("name", ["since", "SINCE", "Since (UTC)", "since_(utc)"])
def test_columns_are_found_by_key_or_title_in_any_case(name: str) -> None:
    assert [column.key for column in selected(COLUMNS, [name, "host"])] == ["host", "since"]


def test_unknown_columns_are_named_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"there is no column 'gpu' or 'x'") as caught:
        selected(COLUMNS, ["gpu", "host", "x"])
    assert caught.value.remedy == "columns: host, numa_node, since, modules"


def test_values_and_texts() -> None:
    assert described(COLUMNS, ROW) == {"host": "gpu01", "numa_node": 1, "since": "Monday", "modules": ["a", "b"]}
    assert [column.cell(ROW) for column in COLUMNS] == ["gpu01", 1, "on Monday", "a, b"]
    assert [in_words(value) for value in (None, "", [], True, False, 0)] == ["-", "-", "-", "yes", "no", "0"]
