"""Options as usage lines write them."""

import argparse
from pathlib import Path

import pytest

from gpustack.cli.options import option


@pytest.mark.parametrize(
    ("usage", "words", "value"),
    [
        ("--prune", [], False),
        ("--prune", ["--prune"], True),
        ("--host NAME", ["--host", "a", "--host", "b"], "b"),
        ("--host NAME…", ["--host", "a", "--host", "b"], ["a", "b"]),
        ("--out FILE", ["--out", "-"], Path("-")),
        ("--out FILE…", ["--out", "a"], [Path("a")]),
        ("--out PATTERN", ["--out", "a"], "a"),
    ],
)
def test_usage_decides_the_kind_of_an_option(usage: str, words: list[str], value: object) -> None:
    parser = argparse.ArgumentParser()
    option(parser, usage, "text", dest="value")
    assert parser.parse_args(words).value == value


def test_further_arguments_win() -> None:
    parser = argparse.ArgumentParser()
    option(parser, "--out DIR", "text", type=str, default="there")
    assert parser.parse_args([]).out == "there"
    assert parser.parse_args(["--out", "x"]).out == "x"
    assert "--out DIR" in parser.format_help()
