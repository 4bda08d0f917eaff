"""The steps of ``make day`` name headings and commands that the pages have, so an edit of a page fails here at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import day
from support.pages import PageError, Printed, blocks

PAGE = """\
# Title

$ prose

## First

1. A list:

   ```console
   $ tool make x \\
       --more
   made
   # tool remove x
   ```

## Second

```yaml
# Third
a: 1
```
"""
KEPT = (day.TUTORIAL, "Apply and verify"), (day.TUTORIAL, "Recover lost GPUs"), (day.INSTALL, "Install without network")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE, encoding="utf-8")
    return path


def test_the_pages_have_every_command_of_the_day() -> None:
    for step in (*day.ONLINE, *day.DAY, *day.AFTER_UPGRADE, *day.FORGET):
        assert step.commands()


def test_complete_headings_run_without_a_choice() -> None:
    """A new command there runs in the day without an edit of the steps."""
    complete = {(step.page, step.heading) for step in day.DAY if isinstance(step, Printed) and not step.only}
    assert complete >= set(KEPT)


def test_commands_of_a_heading_without_prompts_and_output(page: Path) -> None:
    step = Printed("page.md", "First", docs=page.parent)
    assert step.commands() == [("tool make x \\\n    --more", 0), ("tool remove x", 0)]


def test_a_choice_a_replacement_and_an_exit_code(page: Path) -> None:
    step = Printed(
        "page.md", "First", only=("tool remove x$",), put=(("x", "y"),), codes={"tool remove": 3}, docs=page.parent
    )
    assert step.commands() == [("tool remove y", 3)]


def test_blocks_are_those_of_the_heading_and_language(page: Path) -> None:
    assert blocks(page, "Second", "yaml") == ["# Third\na: 1\n"]
    assert blocks(page, "Second", "console") == []


@pytest.mark.parametrize(
    "step",
    [
        {"heading": "Third"},
        {"heading": "Second"},
        {"heading": "First", "only": ("tool edit",)},
        {"heading": "First", "put": (("z", "y"),)},
        {"heading": "First", "codes": {"tool edit": 3}},
    ],
)
def test_what_a_page_lacks_is_an_error(page: Path, step: dict[str, object]) -> None:
    with pytest.raises(PageError):
        Printed("page.md", docs=page.parent, **step).commands()  # type: ignore[arg-type]
