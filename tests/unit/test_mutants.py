"""The faults that make mutants puts into a module, and the tests that it runs."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from support import checkout, forked
from support.mutations import mutations


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("x = a < b", ["x = (a <= b)"]),
        ("x = a not in b", ["x = (a in b)"]),
        ("x = a and b or c", ["x = ((a and b) and c)", "x = (a or b) or c"]),
        ("x = not a", ["x = (a)"]),
        ("LIMIT = 255", ["LIMIT = (256)"]),
        ("x = f(True)", ["x = f((False))"]),
        ("x = a if b else c", ["x = (a if not b else c)"]),
        ("f(x)", ["pass"]),
        ("x: Literal[3] = f(y)", []),
        ('x = f"{a < b}"', []),
        ('"""Docstring of 255."""', []),
        ("x = 'é' if a == b else c", ["x = 'é' if (a != b) else c"]),
    ],
)
def test_each_fault_changes_one_expression(line: str, changed: list[str]) -> None:
    texts = [change.text for change in mutations(f"{line}\n")]
    assert sorted(texts) == sorted(f"{text}\n" for text in changed)
    for text in texts:
        ast.parse(text)


def test_results_of_functions_are_dropped() -> None:
    (change,) = mutations("def f():\n    return g()\n")
    assert (change.line, change.describe()) == (2, "return g() → return None")


def test_only_lines_that_tests_run_change() -> None:
    assert [change.line for change in mutations("x = 1\ny = 2\n", {2})] == [2]


def test_a_fault_in_a_copy_is_noticed_by_its_tests(tmp_path: Path) -> None:
    """The copy is imported as it is then, not the checkout; the plug-in records which tests run each line."""
    place = checkout.copied(tmp_path)
    module, tests = place / "gpustack/pci/catalogue.py", ["tests/unit/pci/test_catalogue.py"]
    traced = {"GPUSTACK_LINES": f"{place}/lines.json:{module}"}
    assert checkout.pytest(place, ["-p", "support.lines", *tests], timeout=120, **traced).returncode == 0
    lines = json.loads((place / "lines.json").read_text())[str(module)]
    (first, *_), *_ = lines.values()
    assert first.startswith(f"{tests[0]}::test_")
    with forked.started(place) as runs:
        assert runs.pytest([first], timeout=120) == pytest.ExitCode.OK
        text = module.read_text()
        module.write_text("raise RuntimeError('a fault')\n")
        assert runs.pytest(tests, timeout=120) == pytest.ExitCode.INTERRUPTED
        module.write_text("import time\ntime.sleep(60)\n")
        assert runs.pytest([first], timeout=0.5) is None
        module.write_text(text)
        assert runs.pytest([first], timeout=120) == pytest.ExitCode.OK
        assert runs.pytest([f"{tests[0]}::test_nowhere"], timeout=120) == pytest.ExitCode.USAGE_ERROR
