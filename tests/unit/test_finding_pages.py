"""The pages of findings: one for each code, which names the commands that can report it."""

from __future__ import annotations

import re

import pytest
from finding_pages import finding_pages, findings_page
from reporters import reporters

from gpustack.base.findings import Code, definitions
from gpustack.cli import pages
from gpustack.cli.app import main
from support import reported
from support.host_samples import SNAPSHOTS


def test_each_finding_has_a_page_at_the_address_that_explain_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pages.VARIABLE, "https://docs.example")
    addresses = {f"https://docs.example/reference/findings/{name.removesuffix('.md')}.html" for name in finding_pages()}
    assert addresses == {pages.finding(code) for code in definitions()}


def test_the_list_keeps_the_anchors_that_older_versions_print() -> None:
    anchors = re.findall(r'<span id="(gpu\d+)"></span>\[GPU\d+\]\(\.\./findings/\1\.md\)', findings_page())
    assert sorted(anchors) == sorted(code.lower() for code in definitions())


def test_each_page_names_a_command_or_a_playbook() -> None:
    for name, text in finding_pages().items():
        assert re.search(r"commands\.md#gpustack-|\(\.\./playbooks\.md\): `", text), name


@pytest.mark.parametrize(
    ("code", "commands", "playbooks"),
    [
        (Code.OWN_FILE_MODIFIED, ("host undo",), ("undo.yml",)),
        (Code.RESTART_HARMFUL, (), ("nova.yml",)),
        (Code.FILTER_UNKNOWN, ("nova lint",), ()),
        (
            Code.VERIFY_IOMMU_INACTIVE,
            ("host apply", "host undo", "host verify"),
            ("prepare.yml", "undo.yml", "verify.yml"),
        ),
    ],
)
def test_commands_and_playbooks_of_a_finding(code: Code, commands: tuple[str, ...], playbooks: tuple[str, ...]) -> None:
    assert reporters()[code] == (commands, playbooks)


def test_codes_in_data_belong_to_the_commands_that_read_the_file() -> None:
    """The codes of kernel messages are in ``signs.jsonl`` alone."""
    assert {"health", "guest check"} <= set(reporters()["GPU915"][0])


def test_a_command_that_no_page_names_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command of the tests is compared: see tests/conftest.py."""
    scan = ["scan", "--snapshot", str(SNAPSHOTS / "k4200.json")]
    assert main(scan) == 0
    monkeypatch.setattr(reported, "reporters", lambda: dict.fromkeys(definitions(), ((), ())))
    with pytest.raises(pytest.fail.Exception, match="gpustack scan reports GPU"):
        main(scan)
