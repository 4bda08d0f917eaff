"""The table of projects against their quotas. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpustack.base.text import clipped
from gpustack.offer.quota.shares import Share
from gpustack.offer.quota.survey import Survey

_MOST = 500
"""The most rows; `gpustack quota show --all-projects` prints all."""
_ORDER = ("over", "full", "unknown", "free")


@dataclass(frozen=True, kw_only=True)
class QuotaTable:
    """Projects against their quotas, those over their limit first.

    :ivar unregistered: the models for which Keystone has no limit.
    :ivar unknown: why the limits are unknown; empty if they are known.
    :ivar more: the number of rows that are left out.
    """

    rows: Sequence[dict[str, str]] = ()
    unregistered: Sequence[str] = ()
    unknown: str = ""
    more: int = 0


def quota_table(survey: Survey) -> QuotaTable:
    """The table of these shares."""
    ordered = sorted(survey.shares, key=lambda share: (_ORDER.index(share.state), share.project.name, share.model))
    return QuotaTable(
        rows=[_row(share) for share in ordered[:_MOST]],
        unregistered=[clipped(model) for model in survey.unregistered],
        more=max(len(ordered) - _MOST, 0),
    )


def _row(share: Share) -> dict[str, str]:
    """A project and its limit for a model; a number that is unknown is a question mark."""
    project = share.project
    identity = "" if project.id == project.name else clipped(project.id)
    cells = {name: getattr(share, name) for name in ("model", "limit", "source", "used", "free", "state")}
    shown = {name: "?" if value is None else clipped(str(value)) for name, value in cells.items()}
    return {"name": clipped(project.name), "identity": identity, **shown}
