"""The recipes of CONTRIBUTING.md, each followed in a copy of the tree: the tests that the row names pass afterwards."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
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
    path = place / "gpustack/data/findings/device.toml"
    before = path.read_text(encoding="utf-8")
    insert(path, "\n[GPU010]", FINDING.replace("GPU039", "GPU038"))
    ran = checkout.pytest(place, ["tests/unit/base/test_findings.py"], timeout=LONGEST)
    path.write_text(before, encoding="utf-8")
    assert ran.returncode == 1
    assert "GPU038" in ran.stdout


RULE = '''"""Class V: a row at an address that no host has."""

from collections.abc import Iterator

from gpustack.novadb.view import Clock
from gpustack.novadb.view import NodeView
from gpustack.repair.evidence import Case
from gpustack.repair.verdict import Status, Verdict

CLASS = "V"
TITLE = "an address that no host has"


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Yield verdicts on free rows in the last PCI domain."""
    for row in view.rows:
        if row.live and row.address.startswith("ffff:") and row.instance_uuid is None:
            case = Case(klass=CLASS, title=TITLE, view=view, clock=clock, rows=(row,))
            yield case.verdict(Status.REPORT, "no host has a device in this domain")
'''
CASES = """\
- case: a free row in the last domain
  rows: [{status: available, address: "ffff:80:00.0"}]
  verdicts: [V report 1]
- case: a free row in another domain
  rows: [{status: available, address: "fffe:80:00.0"}]
  verdicts: []
"""
LEAK = """

@pytest.mark.every_release
def test_a_row_at_an_address_that_no_host_has(world: World) -> None:
    (host,) = world.hosts(1)
    world.sql(f"UPDATE pci_devices SET address = 'ffff:80:00.0' WHERE id = {FREE}", host=host)
    assert f"V report {host}" in world.plan()
"""
ENTRY = """\
  V:
    leak:
      - test_by_hand::test_a_row_at_an_address_that_no_host_has
    alike:
      - cases/v-no-address.yaml
"""


def test_a_class_of_cleanup(place: Path) -> None:
    row = ROWS["a class of clean-up"]
    assert "`gpustack/repair/rules/x_name.py`" in row
    (place / "gpustack/repair/rules/v_no_address.py").write_text(RULE, encoding="utf-8")
    rules = place / "gpustack/repair/rules/__init__.py"
    insert(rules, ")\nfrom gpustack.repair.rules._rule", "    v_no_address,\n")
    insert(rules, ")\nWITNESSED", "    v_no_address,\n")
    assert "`docs/runbook/class-x.md`" in row
    page = place / "docs/runbook/class-v.md"
    page.write_text("# Class V (no-address): an address that no host has\n", encoding="utf-8")
    assert "`tests/unit/repair/cases/x-name.yaml`" in row
    (place / "tests/unit/repair/cases/v-no-address.yaml").write_text(CASES, encoding="utf-8")
    with (place / "tests/nova/cleanup/test_by_hand.py").open("a", encoding="utf-8") as leaks:
        leaks.write(LEAK)
    with (place / "tests/unit/repair/classes.yaml").open("a", encoding="utf-8") as classes:
        classes.write(ENTRY)
    tests = "tests/unit/repair/test_classes.py"
    parts = ("each_class_has_each_part", "each_module_is_of_its_letter", "cases_and_pages_have_the_name_of_the_class")
    leak = "its_tests_are_there_and_its_leak_is_made_on_both_releases[V]"
    passes(place, "a class of clean-up", [*(f"{tests}::test_{part}" for part in parts), f"{tests}::test_{leak}"])
    ran = checkout.pytest(place, ["tests/unit/repair/test_rules.py"], timeout=LONGEST)
    assert ran.returncode == 0, ran.stdout


def test_a_distribution(place: Path) -> None:
    """A derivative of Debian that does not name it in ``ID_LIKE``."""
    source = (place / "tests/unit/prepare/host/cases/first-run.yaml").read_text(encoding="utf-8")
    machine = "host: k4200\nchanges:\n  set: {os_release: {ID: lmde, PRETTY_NAME: LMDE 7}}\n"
    case = place / "tests/unit/prepare/host/cases/lmde.yaml"
    case.write_text(source.replace("host: k4200\n", machine), encoding="utf-8")
    test = ["tests/unit/prepare/host/test_cases.py::test_case[lmde]"]
    assert checkout.pytest(place, test, timeout=LONGEST).returncode == 1
    assert "`gpustack/prepare/host/tools.py`" in ROWS["a distribution"]
    insert(place / "gpustack/prepare/host/tools.py", '"ubuntu"})', '"lmde", ')
    passes(place, "a distribution", test)


TOOL = '''"""Hiera data for puppet-nova: all services of a host read one file."""

from collections.abc import Iterator, Sequence

from gpustack.configure.rendered import Job, RenderedFile, Tool, dumped

FILE = "gpustack.yaml"


def files(job: Job, names: Sequence[str]) -> Iterator[RenderedFile]:
    """One file for each compute host."""
    for host in names:
        sections = job.sections(job.services, host)
        lines = [[section.group, line.name, line.value] for section in sections for line in section.lines]
        path = f"{job.directory}/{host}/{FILE}"
        yield RenderedFile(target="", path=path, text=dumped([{"gpustack": lines}]), services=job.services)


TOOL = Tool(directory="hieradata/nodes", files=files, places=lambda below: (f"{below}/*/{FILE}",))
'''
RENDERED = '''"""Hiera data."""

import yaml

from support.nova_rendered import rendered


def test_a_host_gets_its_devices(tmp_path):
    file = next(file for file in rendered(tmp_path, "puppet").files if "gpu01" in file.path)
    assert file.path == "hieradata/nodes/gpu01/gpustack.yaml"
    assert ["pci", "device_spec"] in [line[:2] for line in yaml.safe_load(file.text)["gpustack"]]
'''


def test_a_deployment_tool(place: Path) -> None:
    row = ROWS["a deployment tool"]
    assert "a module in `gpustack/configure/deployment`" in row
    (place / "gpustack/configure/deployment/puppet.py").write_text(TOOL, encoding="utf-8")
    assert "`TOOLS` in `gpustack/configure/render.py`" in row
    render = place / "gpustack/configure/render.py"
    insert(render, "drop_in, kolla,", "puppet, ")
    insert(render, '    "rhoso": rhoso.TOOL', '    "puppet": puppet.TOOL,\n')
    assert "`gpustack/spec/deployment.py`" in row
    insert(place / "gpustack/spec/deployment.py", '"rhoso"', '"puppet", ')
    for command in re.findall(r"`\.venv/bin/python ([^`]+)`", row):
        run = [sys.executable, *command.split()]
        subprocess.run(run, cwd=place, env=checkout.environment(place), check=True, timeout=LONGEST)
    test = place / "tests/unit/configure/deployment/test_puppet.py"
    test.write_text(RENDERED, encoding="utf-8")
    names = ("configure/deployment/test_puppet.py", "spec/test_schema.py", "test_manuals.py")
    passes(place, "a deployment tool", [f"tests/unit/{name}" for name in names])


def test_a_release_changes_the_version_in_each_place(place: Path) -> None:
    step = re.search(r"^6\. Run `\.venv/bin/python (tools/release) NEXT\.dev0 --only-version`", GUIDE, re.MULTILINE)
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


def repository(place: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Make a git repository of the copy, and answer a function that runs ``tools/release`` there."""
    names = {
        f"GIT_{role}_{part}": f"{role}@example.org" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")
    }
    environment = {**checkout.environment(place), **names, "GIT_CONFIG_GLOBAL": "/dev/null"}
    for arguments in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message", "all")):
        subprocess.run(["git", *arguments], cwd=place, env=environment, check=True)

    def release(version: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "tools/release", version]
        return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)

    return release


def test_a_release_refuses_before_it_changes_anything(place: Path) -> None:
    release = repository(place)
    assert "0.0.1 is not above the last release" in release("0.0.1").stderr
    (place / "new").touch()
    assert "uncommitted changes" in release("9.8.7").stderr
    (place / "new").unlink()
    for path in (place / "changelog.d").glob("+*.md"):
        path.unlink()
    subprocess.run(
        ["git", "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qam", "none"], cwd=place, check=True
    )
    assert "no fragment" in release("9.8.7").stderr
    head = subprocess.run(["git", "log", "-1", "--format=%s"], cwd=place, capture_output=True, text=True, check=True)
    assert head.stdout == "none\n"


def test_a_release_commits_and_tags(place: Path) -> None:
    (place / "changelog.d/+made.removed.md").write_text("The option `--made-up` is removed.\n", encoding="utf-8")
    release = repository(place)
    ran = release("9.8.7")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    described = subprocess.run(["git", "describe"], cwd=place, capture_output=True, text=True, check=True)
    assert described.stdout == "v9.8.7\n"
    status = subprocess.run(["git", "status", "--porcelain"], cwd=place, capture_output=True, text=True, check=True)
    assert status.stdout == ""
    assert release("--check=v9.8.7").returncode == 0
    assert "the tag is v9.8.6, but gpustack/__init__.py has 9.8.7" in release("--check=v9.8.6").stderr
    assert "## 9.8.7 (" in (place / "CHANGELOG.md").read_text(encoding="utf-8")
    notes = (place / "docs/reference/upgrade-notes.md").read_text(encoding="utf-8")
    assert "## 9.8.7\n" in notes
    assert "- The option `--made-up` is removed.\n" in notes
    kept = checkout.pytest(place, ["tests/unit/test_released.py", "-k", "9.8.7 or kept"], timeout=LONGEST)
    assert kept.returncode == 0, kept.stdout
    assert "9 passed" in kept.stdout, "the files that the release wrote are read"
