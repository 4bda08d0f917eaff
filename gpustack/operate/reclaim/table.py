"""The rows of ``gpustack reclaim plan``: plain data, and text for people. Pure."""

from collections.abc import Mapping

from gpustack.operate.reclaim.model import Decision, Step

COLUMNS = {
    "server": "ID",
    "server_name": "Instance",
    "project": "Project",
    "user": "User",
    "host": "Host",
    "gpus": "GPUs",
    "reason": "Idle",
    "step": "Next step",
}
"""The columns for people: keys of :func:`describe` and their titles."""
FIELDS = (
    *("server", "server_name", "project", "project_name", "user", "user_name", "host", "flavor", "gpus", "status"),
    *("reason", "since", "step", "due", "snapshot_gib", "findings"),
)
"""The keys of :func:`describe`, in its order."""


def describe(decision: Decision, projects: Mapping[str, str], users: Mapping[str, str]) -> dict[str, object]:
    """A decision as plain data; unknown values are None.

    :param projects: names of projects by id.
    :param users: names of users by id.
    """
    server = decision.server
    return {
        "server": server.id,
        "server_name": server.name,
        "project": server.project,
        "project_name": projects.get(server.project),
        "user": server.user,
        "user_name": users.get(server.user),
        "host": server.host or None,
        "flavor": server.flavor,
        "gpus": decision.gpus,
        "status": server.status,
        "reason": decision.reason or None,
        "since": f"{decision.since:%FT%TZ}" if decision.since else None,
        "step": decision.step.value,
        "due": f"{decision.due:%FT%TZ}" if decision.due else None,
        "snapshot_gib": decision.snapshot,
        "findings": [finding.to_dict() for finding in decision.findings],
    }


def texts(fields: Mapping[str, object], decision: Decision) -> list[object]:
    """The cells for people."""
    shown = {
        **fields,
        "project": fields["project_name"] or fields["project"],
        "user": fields["user_name"] or fields["user"],
        "reason": fields["reason"] or "no",
        "step": _step(decision),
    }
    return ["-" if shown[key] is None else shown[key] for key in COLUMNS]


def _step(decision: Decision) -> str:
    codes = ", ".join(dict.fromkeys(finding.code.value for finding in decision.findings))
    match decision.step:
        case Step.WAIT:
            return f"wait until {decision.due:%F %R} UTC"
        case Step.SHELVE if decision.snapshot:
            return f"shelve (snapshot of up to {decision.snapshot} GiB)"
        case _:
            return f"{decision.step.value} ({codes})" if codes else decision.step.value
