"""The recipes of CONTRIBUTING.md, each followed in a copy of the tree: the tests that the row names pass afterwards."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from support import checkout

GUIDE = (checkout.TOP / "CONTRIBUTING.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| (a [\w -]+?) \| (.+) \|$", GUIDE, re.MULTILINE))
LONGEST = 120.0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout.copied(tmp_path_factory.mktemp("copy"))


def insert(path: Path, before: str, text: str) -> None:
    """Insert a text before another one, which the file contains once."""
    content = path.read_text(encoding="utf-8")
    assert content.count(before) == 1, before
    path.write_text(content.replace(before, text + before), encoding="utf-8")


def passes(place: Path, recipe: str, tests: Sequence[str]) -> None:
    """Run tests that the recipe's row names, directly or by the place of a new one."""
    for name in tests:
        assert any(path in name for path in re.findall(r"`(tests/[\w/.]+)`", ROWS[recipe])), (name, ROWS[recipe])
    ran = checkout.pytest(place, tests, timeout=LONGEST)
    assert ran.returncode == 0, ran.stdout


def test_a_card(place: Path) -> None:
    assert "`gpustack/data/cards.toml`" in ROWS["a card"]
    line = '    { product = "0ffd", name = "NVS 510", memory_gib = [2] },\n'
    insert(place / "gpustack/data/cards.toml", '    { product = "0ffe", name = "Quadro K2000"', line)
    assert "`requirements.toml`" in ROWS["a card"]
    for listed in ('"0ff3", "0ffa", "0ffe", "1004"', '"118f", "0ff3"'):  # the first driver, and the compute capability
        insert(place / "gpustack/data/requirements.toml", listed, '"0ffd", ')
    passes(place, "a card", ["tests/unit/pci"])


FINDING = """
[GPU039]
title = "The host has no fan"
severity = "warning"
message = "no fan is listed"
remedy = "install a fan, then scan the host again"
explanation = "A card without a fan of its own needs the air of its host."
source = "the manual of the card"
"""
CAUSE = """def _fans(host: Host) -> Iterator[Finding]:
    if host.hostname == "fanless":
        yield finding(Code.NO_FAN, place=host.hostname)


"""
EVIDENCE = '''"""Findings about hosts."""

from gpustack.hosts.readiness.host import host_reasons
from support.host_samples import host


def test_a_host_without_a_fan() -> None:
    fanless = host().model_copy(update={"hostname": "fanless"})
    assert "GPU039" in {str(finding.code) for finding in host_reasons(fanless)}
    assert "GPU039" not in {str(finding.code) for finding in host_reasons(host())}
'''


def test_a_finding(place: Path) -> None:
    assert "`gpustack/base/codes.py`" in ROWS["a finding"]
    module = place / "gpustack/hosts/readiness/host.py"
    insert(place / "gpustack/data/findings/device.toml", "\n[GPU010]", FINDING)
    insert(place / "gpustack/base/codes.py", "    CARD_FUNCTION_IN_USE =", '    NO_FAN = "GPU039"\n')
    insert(module, "def _iommu(host: Host)", CAUSE)
    insert(module, "        *_circumstances(host),\n", "        *_fans(host),\n")
    (place / "tests/unit/hosts/readiness/test_host.py").write_text(EVIDENCE, encoding="utf-8")
    tests = ["tests/unit/base/test_findings.py", "tests/unit/hosts/readiness/test_host.py"]
    passes(place, "a finding", [tests[0]])
    assert checkout.pytest(place, tests[1:], timeout=LONGEST).returncode == 0


def test_a_finding_without_its_name_in_code_fails(place: Path) -> None:
    """The tests of the row are no formality."""
    insert(place / "gpustack/data/findings/device.toml", "\n[GPU010]", FINDING.replace("GPU039", "GPU038"))
    ran = checkout.pytest(place, ["tests/unit/base/test_findings.py"], timeout=LONGEST)
    assert ran.returncode == 1
    assert "GPU038" in ran.stdout


def test_a_release_changes_the_version_in_each_place(place: Path) -> None:
    step = re.search(r"^2\. Run `\.venv/bin/python (tools/release) VERSION --only-version`", GUIDE, re.MULTILINE)
    assert step is not None
    command = [sys.executable, step[1], "9.8.7", "--only-version"]
    subprocess.run(command, cwd=place, env=checkout.environment(place), check=True, timeout=LONGEST)
    tests = [
        "tests/unit/test_manuals.py::test_the_files_are_those_of_the_parsers",
        "tests/unit/test_distributions.py::test_both_distributions_have_one_version",
        "tests/unit/playbooks/test_action_plugins.py::test_the_playbooks_have_the_version_of_the_library",
    ]
    ran = checkout.pytest(place, tests, timeout=LONGEST)
    assert ran.returncode == 0, ran.stdout
    assert "gpustack 9.8.7" in (place / "share/man/man1/gpustack.1").read_text(encoding="utf-8")


@pytest.mark.parametrize("version", ["v0.2.0", "0.2.0-beta", "next"])
def test_a_release_refuses_other_forms_of_a_version(place: Path, version: str) -> None:
    command = [sys.executable, "tools/release", version, "--only-version"]
    environment = checkout.environment(place)
    ran = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "is not a version in the normal form" in ran.stderr
