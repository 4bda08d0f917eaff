"""The language of texts that operators read."""

import ast
import itertools
import re
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest
from spec_reference import markdown

from gpustack.base.findings import definitions
from gpustack.cli.app import Gpustack

TOP = Path(__file__).parents[2]
AVOIDED = re.compile(
    r"\b(tells?|told|stands?(?!-)|shall|anew|afresh|mends?|kin|whole|lest|in place of|g[ia]ven? back)\b", re.IGNORECASE
)
"""Verbs for output, and words that have a plainer one: set, must, again, fix, complete, instead of, restore."""
OUTPUT_VERBS = re.compile(r"\b(say|says|said)\b", re.IGNORECASE)
"""Files and programs report, print, contain or name something."""
PLAIN_PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/index.md",
    "docs/support.md",
    "docs/reference/exit-codes.md",
    "docs/reference/glossary.md",
    "docs/reference/playbooks.md",
    "docs/reference/snapshot.md",
    "SECURITY.md",
    *sorted(
        str(path.relative_to(TOP))
        for part in ("explanation", "howto", "runbook", "tutorial")
        for path in (TOP / "docs" / part).glob("*.md")
    ),
)


@pytest.mark.parametrize("field", ["title", "message", "remedy"])
def test_findings_use_plain_words(field):
    texts = {code: getattr(definition, field) for code, definition in definitions().items()}
    assert {code: text for code, text in texts.items() if AVOIDED.search(text)} == {}


@pytest.mark.parametrize("page", PLAIN_PAGES)
def test_front_pages_use_plain_words(page):
    assert AVOIDED.findall((TOP / page).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("command", entry_points(group="gpustack.cli"), ids=lambda entry: entry.name)
def test_help_uses_plain_words(command: EntryPoint):
    text = Gpustack().parser_of(command.name.replace("_", " ")).format_help()
    assert AVOIDED.findall(text) == []
    assert OUTPUT_VERBS.findall(text) == []


@pytest.mark.parametrize(
    "package", ["cli", "connect/playbooks", "prepare/host", "configure", "offer/flavor", "repair", "spec"]
)
def test_messages_use_plain_words(package):
    paths = sorted((TOP / "gpustack" / package).rglob("*.py"))
    texts = [(str(path), text) for path in paths for text in _messages(ast.parse(path.read_text(encoding="utf-8")))]
    assert texts
    assert [(path, text) for path, text in texts if AVOIDED.search(text) or OUTPUT_VERBS.search(text)] == []


NOUNS = (
    "GPU|vGPU|CPU|vCPU|host|instance|row|repair|project|image|device|error|unit|group|guest|line|function|provider|message"
    "|time|lane|slice|flavor|plan|place|service|column|operation|NVSwitche|BAR"
)
PLURAL = rf"(?:(?!of\b)[a-z]+ )?(?:{NOUNS})s\b"
SEVERAL = {
    "base/findings.py: len(items)",
    "base/host_groups.py: len(group)",
    "cli/change.py: len(stopped)",
    "cli/common.py: total",
    "cli/flavor.py: len(names)",
    "cli/host.py: len(self._plans)",
    "cli/nova.py: len(stopped)",
    "cloud/identity.py: len(found)",
    "cloud/limits.py: len(services)",
    "hosts/topology/build.py: len(self.columns)",
    "operate/why/instance.py: len(same)",
    "operate/why/read.py: len(found)",
    "spec/patterns.py: pattern.count",
    "cli/guest.py: needs.mig",  # MIG divides a GPU into several instances
    "offer/guest/requirements.py: needs.mig",
    "cli/change.py: record.head.id",  # no numbers
}
"""Numbers that are never 1 where they precede a plural: a branch of their own prints one."""


def test_numbers_with_nouns_are_made_by_counted():
    found = set()
    for path in sorted((TOP / "gpustack").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            parts = node.values if isinstance(node, ast.JoinedStr) else []
            for value, text in itertools.pairwise(parts):
                if isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant):
                    name = ast.unparse(value.value)
                    if re.match(f" {PLURAL}", text.value) and not name.isupper() and not name.startswith("counted("):
                        found.add(f"{path.relative_to(TOP / 'gpustack')}: {name}")
    assert found == SEVERAL


def test_findings_have_no_number_before_a_plural():
    """Their texts are templates: the number follows its noun, ``free GPUs: 1``."""
    several = {"GPU250", "GPU316", "GPU345", "GPU392", "GPU394", "GPU721", "GPU741"}  # always more than one
    several |= {"GPU013", "GPU717", "GPU816", "GPU826", "GPU884", "GPU978"}  # no numbers
    found = {code for code, each in definitions().items() if re.search(rf"\{{\w+\}} {PLURAL}", each.message)}
    assert found == several


def test_spec_reference_uses_plain_words():
    text = markdown()
    assert AVOIDED.findall(text) == []
    assert OUTPUT_VERBS.findall(text) == []
    assert re.findall(r"\bto guests\b", text) == [], "GPUs are passed through to instances"


def _messages(tree):
    """The strings of several words that are no docstrings."""
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return [node.value for node in strings if " " in node.value and id(node) not in documents]


def test_the_readme_is_short():
    text = (TOP / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 800
    commands = re.findall(r"^\$ (.*)", text, re.MULTILINE)
    assert len(commands) <= 7
    assert {"make demo", "make test"} <= {*commands}


@pytest.mark.parametrize("page", ["README.md", "docs/reference/comparison.md"])
def test_tests_named_on_the_page_exist(page):
    output = re.findall(r"`(tests/[\w./-]+)`", (TOP / page).read_text(encoding="utf-8"))
    assert output
    assert [path for path in output if not (TOP / path).exists()] == []
