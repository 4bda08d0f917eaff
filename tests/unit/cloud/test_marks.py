"""Marks count only with Nova's record of gpustack's own request."""

from __future__ import annotations

import pytest

from gpustack.cloud.marks import MarkKind, Since, keys_of, mark_of, metadata_after, metadata_of
from gpustack.cloud.servers import Event, Server

KIND = MarkKind.STOPPED
AFTER = metadata_after("r0")


def server(*actions: tuple[str, str], **metadata: str) -> Server:
    """An instance with a mark and actions since, oldest first, each with its user."""
    events = [Event(what=what, user=user, request=f"r{number}") for number, (what, user) in enumerate(actions, 1)]
    first = Event(what="create", user="tenant", request="r0")
    return Server(id="vm", metadata={**metadata_of(KIND, "gpu1"), **AFTER, **metadata}, actions=(*events[::-1], first))


@pytest.mark.parametrize(
    ("actions", "since", "recorded"),
    [
        ([("stop", "admin")], Since.OURS, True),
        ([("stop", "admin"), ("start", "admin")], Since.OURS, True),
        ([("stop", "admin"), ("start", "tenant")], Since.OTHERS, True),
        ([("stop", "tenant")], Since.OTHERS, False),
        ([("reboot", "admin")], Since.OTHERS, False),
        ([], Since.NOTHING, False),
    ],
)
def test_the_record_decides(actions: list[tuple[str, str]], since: Since, recorded: bool) -> None:
    mark = mark_of(server(*actions), KIND, "admin")
    assert mark is not None
    assert (mark.since, mark.recorded) == (since, recorded)


def test_an_unknown_request_proves_nothing() -> None:
    mark = mark_of(server(("stop", "admin"), gpustack_after="elsewhere"), KIND, "admin")
    assert mark is not None
    assert (mark.since, mark.recorded) == (Since.OTHERS, False)


def test_the_request_is_removed_with_the_last_mark() -> None:
    both = server(**metadata_of(MarkKind.MOVED, "gpu2"))
    assert keys_of(both, "gpu1") == ("gpustack_stopped_for",)
    assert keys_of(server(), "gpu1") == ("gpustack_after", "gpustack_stopped_for")
