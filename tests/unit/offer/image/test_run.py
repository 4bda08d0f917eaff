"""Changes of images: read again before, journal, undo. Glance is a stand-in."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gpustack.base.errors import JournalError
from gpustack.cloud.image import Image
from gpustack.cloud.session import Refused, Unanswered
from gpustack.offer.image.change import SetProperties
from gpustack.offer.image.journal import ImageJournal, read
from gpustack.offer.image.run import Result, carry_out

CHANGE = SetProperties(
    why="test",
    image="1",
    name="i",
    after={"hw_machine_type": "q35", "os_type": "windows"},
    before={"hw_machine_type": None, "os_type": "Windows"},
)


@dataclass
class Glance:
    """One image, and an error of the next change."""

    present: Image | None = field(default_factory=lambda: Image(id="1", name="i", properties={"os_type": "Windows"}))
    error: Exception | None = None

    def image(self, image_id: str) -> Image | None:
        return self.present

    def change(self, operation: SetProperties) -> None:
        if self.error:
            raise self.error
        assert self.present
        merged = {**self.present.properties, **operation.after}
        self.present = replace(self.present, properties={key: value for key, value in merged.items() if value})


def run(glance: Glance, path: Path) -> Result:
    with closing(ImageJournal(path)) as journal:
        return carry_out(glance, CHANGE, journal).result


def test_a_change_and_its_undo(tmp_path: Path) -> None:
    glance = Glance()
    assert run(glance, tmp_path / "j") is Result.CHANGED
    assert glance.present
    assert glance.present.properties == CHANGE.after
    (entry,) = read(tmp_path / "j")
    assert (entry.operation, entry.outcome) == (CHANGE, "changed")
    assert carry_out(glance, entry.operation.reverse()).result is Result.CHANGED
    assert glance.present.properties == {"os_type": "Windows"}
    assert carry_out(glance, entry.operation.reverse()).result is Result.UNCHANGED


@pytest.mark.parametrize(
    ("properties", "result"),
    [
        ({"os_type": "linux"}, Result.SKIPPED),
        ({"os_type": "Windows", "hw_machine_type": "pc"}, Result.SKIPPED),
        ({"os_type": "windows", "hw_machine_type": "q35"}, Result.UNCHANGED),
        (None, Result.SKIPPED),
    ],
)
def test_an_image_that_changed_meanwhile_is_left_alone(
    tmp_path: Path, properties: dict[str, str] | None, result: Result
) -> None:
    glance = Glance(None if properties is None else Image(id="1", name="i", properties=properties))
    before = glance.present
    assert run(glance, tmp_path / "j") is result
    assert glance.present == before
    assert read(tmp_path / "j") == ()


def test_a_refused_change_is_recorded_as_failed(tmp_path: Path) -> None:
    assert run(Glance(error=Refused("no", status=403)), tmp_path / "j") is Result.FAILED
    assert [entry.outcome for entry in read(tmp_path / "j")] == ["failed"]


def test_a_change_without_an_answer_stays_in_the_journal(tmp_path: Path) -> None:
    with pytest.raises(Unanswered):
        run(Glance(error=Unanswered("gone")), tmp_path / "j")
    assert [entry.outcome for entry in read(tmp_path / "j")] == [""]


@pytest.mark.parametrize(
    "text", ["", '{"gpustack_reclaim_journal": 1}\n', '{"gpustack_image_journal": 1}\n{"begin": 1}\n']
)
def test_another_file_is_no_journal(tmp_path: Path, text: str) -> None:
    (tmp_path / "j").write_text(text, encoding="utf-8")
    with pytest.raises(JournalError):
        read(tmp_path / "j")


@pytest.mark.parametrize(
    "forged",
    [
        {"after": {"visibility": "public"}, "before": {"visibility": "private"}},
        {"after": {"owner": "p"}, "before": {"owner": "q"}},
        {"after": {"os_type": "windows"}, "before": {"os_type": None, "gpustack_driver": "1"}},
    ],
)
def test_an_edited_journal_is_refused(tmp_path: Path, forged: dict[str, object]) -> None:
    entry = {"begin": 1, "why": "x", "image": "1", "name": "i", **forged}
    lines = [{"gpustack_image_journal": 1}, entry]
    (tmp_path / "j").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    with pytest.raises(JournalError, match="nothing was changed"):
        read(tmp_path / "j")


def test_an_image_with_another_owner_is_left_alone() -> None:
    glance = Glance(present=Image(id="1", name="i", owner="new", properties={"os_type": "Windows"}))
    outcome = carry_out(glance, replace(CHANGE, owner="old"))
    assert (outcome.result, outcome.detail) == (Result.SKIPPED, "its project was old and is new")
