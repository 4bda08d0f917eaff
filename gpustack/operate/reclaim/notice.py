"""The notice to the users of an instance: metadata with the time from which the instance may be shelved.

The metadata also names the newest request for the instance. So a notice does not count any more after the instance was
used. Users can remove it; then a new notice begins with the complete grace.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpustack.cloud.servers import Event
from gpustack.spec.reclaim import moment

EXPIRES = "gpustack:expires"
"""Metadata key: when the instance expires. Its users write it."""
DUE = "gpustack:reclaim_at"
"""Metadata key: from when gpustack may shelve the instance."""
AFTER = "gpustack:reclaim_after"
"""Metadata key: the id of the newest request when the notice was written."""
KEYS = (DUE, AFTER)
_NEW_LIFE = frozenset({"create", "shelve", "shelveOffload", "unshelve"})
"""Actions after which a notice to an expired instance does not count any more."""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """The notice of an instance.

    :ivar due: when the instance may be shelved; None if the text is no time with time zone.
    :ivar text: the time as it is written.
    :ivar after: the id of the newest request when it was written.
    """

    due: datetime | None
    text: str
    after: str


def notice_of(metadata: Mapping[str, str]) -> Notice | None:
    """The notice in the metadata of an instance; None if there is none."""
    if not set(KEYS) & metadata.keys():
        return None
    text = metadata.get(DUE, "")
    try:
        due = moment(text)
    except ValueError:
        due = None
    return Notice(due=due, text=text, after=metadata.get(AFTER, ""))


def counts(notice: Notice, actions: Sequence[Event], since: datetime, *, stopped: bool) -> bool:
    """Whether a notice still counts.

    :param actions: the actions of the instance, newest first.
    :param since: since when the instance is idle; a notice for an earlier time does not count.
    :param stopped: whether the instance is idle because it is stopped: then every later request ends the notice.
    """
    if notice.due is not None and notice.due < since:
        return False
    later: list[Event] = []
    for action in actions:
        if action.request == notice.after:
            return not later if stopped else not any(event.what in _NEW_LIFE for event in later)
        later.append(action)
    return False  # the request is not in the list, so later ones are unknown
