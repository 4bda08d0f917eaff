"""Projects with their limits and use."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from gpustack.base.columns import Column
from gpustack.cloud.identity import Project, distinct
from gpustack.cloud.limits import MARK, Limit, Present

_PREFIX = "GPUs: "


@dataclass(frozen=True, kw_only=True)
class Share:
    """The limit of a project for a model, and its use.

    :ivar limit: None if it is unknown. -1 is no limit for oslo.limit 2.12 and later, and refuses everything before.
    :ivar own: whether the project has a limit of its own; the default applies otherwise.
    :ivar used: None if it is unknown.
    """

    project: Project
    model: str
    resource_class: str
    limit: int | None
    own: bool
    used: int | None

    @property
    def free(self) -> int | None:
        """The units that the project may still use; None if that is unknown."""
        if self.limit is None or self.limit < 0 or self.used is None:
            return None
        return max(self.limit - self.used, 0)

    @property
    def state(self) -> str:
        """Whether the project is over its limit, or at it."""
        if self.free is None or self.limit is None or self.used is None:
            return "unknown"
        return "over" if self.used > self.limit else "full" if self.used == self.limit else "free"

    @property
    def source(self) -> str:
        """Where the limit comes from."""
        return "project" if self.own else "default" if self.limit is not None else "unknown"


def columns(projects: Iterable[Project]) -> tuple[Column[Share], ...]:
    """The columns of `gpustack quota show`."""
    shown = distinct({project.id: project.name for project in projects})
    return (
        Column("project", lambda share: share.project.id, "Project", lambda share: shown(share.project.id)),
        Column("project_name", lambda share: share.project.name),
        Column("model", lambda share: share.model, "Model"),
        Column("resource_class", lambda share: share.resource_class),
        *(Column(name, attrgetter(name), name.capitalize()) for name in ("limit", "source", "used", "free", "state")),
    )


def description_of(model: str) -> str:
    """The description of a limit that gpustack creates, by which everybody can read the model."""
    return f"{_PREFIX}{model} {MARK}"


def shares(present: Present, projects: Sequence[Project], models: Mapping[str, str]) -> Iterator[Share]:
    """The limits of projects for GPUs. If Keystone may not have listed all limits, no default is certain to apply.

    :param models: the model by resource class, of a spec; without it, limits with gpustack's mark are for GPUs.
    """
    own = {(limit.project, limit.resource_class): limit for limit in present.limits}
    for project in projects:
        for default in present.defaults:
            name = default.resource_class
            if name not in models if models else not default.ours:
                continue
            limit = own.get((project.id, name))
            yield Share(
                project=project,
                model=models.get(name) or model_of(default),
                resource_class=name,
                limit=limit.limit if limit else default.limit if present.complete else None,
                own=limit is not None,
                used=present.used[project.id].get(name, 0) if project.id in present.used else None,
            )


def model_of(limit: Limit) -> str:
    """The model in the description of a limit that gpustack created; its resource class otherwise."""
    text = limit.description.removesuffix(MARK).strip()
    return text.removeprefix(_PREFIX) if limit.ours and text.startswith(_PREFIX) else limit.resource_class
