"""Text and exit code for the records of a run."""

import re
from collections.abc import Iterable, Sequence

from gpustack.base.errors import ApplyError, GpustackError, HostError, PlanError, VerifyError
from gpustack.base.text import counted, listed
from gpustack.connect.playbooks.record import NO_ROOT, HostRecord, RunOutcome, good

_GRAVEST: tuple[tuple[RunOutcome, type[GpustackError], str], ...] = (
    (RunOutcome.FAILED, ApplyError, "failed"),
    (RunOutcome.NOT_READY, VerifyError, "not ready"),
    (RunOutcome.REFUSED, PlanError, "refused"),
    (RunOutcome.UNREACHABLE, HostError, "could not be reached or read"),
    (RunOutcome.NOT_BEGUN, ApplyError, "not begun"),
)

_REMEDIES = {
    f"^{NO_ROOT}: [^IS]": "add -K (--ask-become-pass), or allow sudo without a password for this user (NOPASSWD)",
    f"^{NO_ROOT}: (Incorrect|Sorry)": "type this user's password on the host at -K, or correct ansible_become_password",
    "connection plugin .* was not found": "correct ansible_connection, or install the collection of the plugin",
    "stdin is not interactive$": "Ansible would ask whether a host key is right: add the key to ~/.ssh/known_hosts",
}
"""By patterns of problems that Ansible or sudo reports."""


def line(host: HostRecord, *, checked: bool = False) -> str:
    """One host in one line."""
    outcome = host.outcome or ("planned" if host.todo and not host.begun else good(host))
    if checked and outcome == RunOutcome.DONE and host.changed:
        outcome = "would change"
    details = ", ".join(host.notes())
    return f"{host.host}: {outcome}" + (f" ({details})" if details else "")


def problems(host: HostRecord) -> str:
    """The problem and remedies of a host in full; empty if there is none."""
    if not host.problem:
        return ""
    lines = [f"{host.host}: {host.problem}"]
    remedies = dict.fromkeys(f.get("remedy", "") for f in host.findings if f.get("severity") == "error")
    remedies |= {remedy: None for pattern, remedy in _REMEDIES.items() if re.search(pattern, host.problem)}
    return "\n".join([*lines, *(f"  → {remedy}" for remedy in remedies)])


def summary(records: Iterable[HostRecord], *, checked: bool = False) -> list[tuple[str, str]]:
    """All hosts, each with its line, those with problems last."""
    ordered = sorted(records, key=lambda host: (bool(host.problem), host.host))
    return [(host.host, line(host, checked=checked)) for host in ordered]


def states(records: Sequence[HostRecord], playbook: str, *, checked: bool) -> dict[str, int]:
    """The numbers of hosts in the total, by state."""
    if playbook == "verify":
        ready = sum(record.verified and not record.problem for record in records)
        return {"ready": ready, "not ready": len(records) - ready}
    planned = {"to change": sum(record.changed or record.todo for record in records)}
    return {
        **(planned if checked or playbook == "plan" else {"changed": sum(record.changed for record in records)}),
        "blocked": sum(record.outcome is RunOutcome.REFUSED for record in records),
        "to reboot": sum(bool(record.reboot) and not record.rebooted for record in records),
    }


def verdict(records: Sequence[HostRecord], remedy: str) -> GpustackError | None:
    """The error for the most severe outcome; None if all hosts succeeded."""
    for outcome, error, state in _GRAVEST:
        if hosts := [record.host for record in records if record.outcome is outcome]:
            summary = f"{len(hosts)} of {counted(len(records), 'host')} {state}: {listed(hosts, 8)}"
            return error(summary, remedy=remedy)
    return None
