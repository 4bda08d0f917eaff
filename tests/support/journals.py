"""Journals of runs on a :class:`support.change_store.Store`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpustack.changes import journal
from gpustack.changes.change import ChangeOutcome, ChangeResult, CloudChange
from gpustack.changes.journal import Cloud, RunHead
from support.change_store import change

CLOUD = Cloud(auth_url="https://keystone/v3", region="R", user="admin", project="ops")
CHANGES = [change("a", None, 1), change("b", {"x": 1}, {"x": 2}, "a"), change("c", 1, None, "b")]


def written(
    *outcomes: tuple[CloudChange, ChangeResult], closed: bool = True, begun: tuple[CloudChange, ...] = ()
) -> Path:
    log = journal.RunJournal(RunHead(id=journal.new_id(), command="flavor apply", cloud=CLOUD, spec="s.yaml"), CHANGES)
    for made, result in outcomes:
        if result is not ChangeResult.NOT_BEGUN:
            log.begin(made)
        log.end(ChangeOutcome(change=made, result=result, id=f"id-{made.name}"))
    for made in begun:
        log.begin(made)
    log.close(ended=closed)
    return log.path


def edited(path: Path, number: int, **values: Any) -> Path:
    lines = path.read_text().splitlines()
    lines[number] = json.dumps({**json.loads(lines[number]), **values})
    path.write_text("\n".join(lines) + "\n")
    return path
