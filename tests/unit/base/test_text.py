"""Untrusted text: what a terminal could obey is escaped, and nothing else."""

import io
import json
from types import SimpleNamespace

import pytest

from gpustack.base.text import SafeStream, counted, in_lines, listed, paragraph, printable, printable_data, raw


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GPU 0000:84:00.0 größer", "GPU 0000:84:00.0 größer"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\u202eb\u2028c", "a\\u202eb\\u2028c"),
        ("\U000e0001", "\\udb40\\udc01"),
        ("one\ntwo\tthree", "one\ntwo\\tthree"),
        ("one\ntwo", "one\ntwo"),
        ("one\x1b\ntwo", "one\\x1b\ntwo"),
    ],
)
def test_harmful_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_json_stays_the_same_document() -> None:
    data = {"name": "\x00\u202e\U000e0001"}
    assert json.loads(printable(json.dumps(data, ensure_ascii=False))) == data


def test_data_is_printable_at_each_level() -> None:
    data = {"\x1b": ["\x1b", ("\x07", 1, None)]}
    assert printable_data(data) == {"\\x1b": ["\\x1b", ["\\x07", 1, None]]}


@pytest.mark.parametrize(
    ("shown", "text"), [(1, "a and 2 more"), (2, "a, b and 1 more"), (3, "a, b, c"), (9, "a, b, c")]
)
def test_long_lists_name_the_number_of_the_others(shown: int, text: str) -> None:
    assert listed(["a", "b", "c"], shown) == text
    assert listed(["a\n\x1b[2J", "b\tc"], 8) == r"a\n\x1b[2J, b\tc"


def test_words_of_a_paragraph_stay_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    long = "0000:84:00.0-0000:88:00.0"
    assert paragraph(f"GPU\n{long} is bound", "→ ", "  ") == f"→ GPU {long} is bound"
    monkeypatch.setattr("gpustack.base.text.sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    assert paragraph(f"GPU\n{long} is bound", "→ ", "  ") == f"→ GPU\n  {long}\n  is bound"


def test_a_safe_stream_escapes_what_it_writes() -> None:
    below = io.StringIO()
    stream = SafeStream(below)
    assert stream.write("\x1b[0m\tx\n") == 7
    assert below.getvalue() == "\\x1b[0m\tx\n"
    assert raw(stream) is raw(below) is below  # type: ignore[arg-type]
    below.close()
    stream.flush()


@pytest.mark.parametrize(("encoding", "written"), [("ascii", r"-> gr\xf6\xdfer..."), ("latin-1", "-> größer...")])
def test_a_stream_without_unicode_gets_ascii(encoding: str, written: str) -> None:
    below = io.BytesIO()
    stream = SafeStream(io.TextIOWrapper(below, encoding=encoding))
    stream.write("→ größer…")
    stream.flush()
    assert below.getvalue().decode(encoding) == written


def test_nouns_are_in_the_plural_but_for_one() -> None:
    assert [counted(number, "host") for number in (0, 1, 2)] == ["0 hosts", "1 host", "2 hosts"]


def test_each_entry_has_one_line() -> None:
    assert in_lines(["a\nb", 1, "c\r\u2028"]) == "a\\nb\n1\nc\\r\\u2028"
    assert in_lines([]) == ""
