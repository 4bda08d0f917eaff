"""Results of tasks: the text for the operator, and what fails a task."""

from gpustack.base.findings import Code, Severity, finding
from gpustack.base.task_results import failure, reported

ERROR = finding(Code.IMAGE_MODE, place="gpu01\x1b[2J", severity=Severity.ERROR)
WARNING = finding(Code.TOPOLOGY_VIRTUAL, place="gpu01", severity=Severity.WARNING)
INFO = finding(Code.TOPOLOGY_VIRTUAL, place="gpu02", severity=Severity.INFO)


def test_a_failed_task_names_its_errors_only() -> None:
    result = failure("blocked", "text\x1b", [WARNING, ERROR])
    assert (result["failed"], result["text"]) == (True, "text\\x1b")
    assert result["msg"] == f"blocked:\n{ERROR.code} gpu01\\x1b[2J: {ERROR.message}"
    assert [entry["code"] for entry in result["findings"]] == [WARNING.code, ERROR.code]


def test_findings_are_reported_without_notes_most_severe_first() -> None:
    result = reported([INFO, WARNING, ERROR])
    assert result["failed"]
    assert result["text"].index(str(ERROR.code)) < result["text"].index(str(WARNING.code))
    assert "gpu02" not in result["text"]
    assert result["msg"] == result["text"]


def test_warnings_do_not_fail_a_task() -> None:
    assert "failed" not in reported([WARNING])
    assert reported([]) == {"text": ""}
