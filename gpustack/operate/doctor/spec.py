"""Check whether the spec is valid."""

from pathlib import Path

from gpustack.base.errors import GpustackError
from gpustack.base.text import counted, quoted
from gpustack.operate.doctor.check import Check, failed, not_configured, ok, warning
from gpustack.spec.load import Examination, examine_file
from gpustack.spec.model import Spec

USUAL = Path("gpustack.yaml")


def checks(path: Path | None) -> tuple[Spec | None, list[Check]]:
    """The spec, and the result of its check.

    :param path: the file; None for :data:`USUAL` in the current directory, if it exists.
    """
    if path is None and not USUAL.is_file():
        remedy = "gpustack spec init HOST --out gpustack.yaml"
        return None, [not_configured("Spec", f"no spec is named, and there is no {USUAL} here", remedy)]
    try:
        examination = examine_file(path or USUAL)
        return examination.checked(), [_check(path or USUAL, examination)]
    except GpustackError as error:
        return None, [failed("Spec", error)]


def _check(path: Path, examination: Examination) -> Check:
    spec = examination.checked()
    seen = f"{path}: valid, {counted(len(spec.models), 'model')}, {counted(len(spec.hosts), 'host pattern')}"
    if examination.problems:
        seen += f", {counted(len(examination.problems), 'warning')}"
        return warning("Spec", seen, f"gpustack spec check {quoted(path)}")
    return ok("Spec", seen)
