"""The rows of ``gpustack reclaim plan``: plain data, and text for people. Pure."""

from collections.abc import Mapping

from gpustack.base.columns import Column, codes
from gpustack.operate.reclaim.model import Decision, Step


def columns(projects: Mapping[str, str], users: Mapping[str, str]) -> tuple[Column[Decision], ...]:
    """The columns of decisions.

    :param projects: names of projects by id.
    :param users: names of users by id.
    """
    return (
        Column("server", lambda entry: entry.server.id, "ID"),
        Column("server_name", lambda entry: entry.server.name, "Instance"),
        Column(
            "project",
            lambda entry: entry.server.project,
            "Project",
            lambda entry: projects.get(entry.server.project) or entry.server.project,
        ),
        Column("project_name", lambda entry: projects.get(entry.server.project)),
        Column(
            "user",
            lambda entry: entry.server.user,
            "User",
            lambda entry: users.get(entry.server.user) or entry.server.user,
        ),
        Column("user_name", lambda entry: users.get(entry.server.user)),
        Column("host", lambda entry: entry.server.host or None, "Host"),
        Column("flavor", lambda entry: entry.server.flavor),
        Column("gpus", lambda entry: entry.gpus, "GPUs"),
        Column("status", lambda entry: entry.server.status),
        Column("reason", lambda entry: entry.reason or None, "Idle", lambda entry: entry.reason or entry.held or "no"),
        Column("since", lambda entry: f"{entry.since:%FT%TZ}" if entry.since else None),
        Column("step", lambda entry: entry.step.value, "Next step", _step),
        Column("due", lambda entry: f"{entry.due:%FT%TZ}" if entry.due else None),
        Column("held", lambda entry: entry.held or None),
        Column("snapshot_gib", lambda entry: entry.snapshot),
        Column("findings", lambda entry: [f.to_dict() for f in entry.findings], "", lambda e: codes(e.findings, "")),
    )


def _step(decision: Decision) -> str:
    found = codes(decision.findings, "")
    match decision.step:
        case Step.WAIT:
            return f"wait until {decision.due:%F %R} UTC"
        case Step.SHELVE if decision.snapshot:
            return f"shelve (snapshot of up to {decision.snapshot} GiB)"
        case _:
            return f"{decision.step.value} ({found})" if found else decision.step.value
