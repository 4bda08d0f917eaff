"""What the answers of hosts permit: the one place that decides it, with :mod:`gpustack.cleanup.questions`.

1. A repair that may free a device is made only with an answer of *every host whose device it may free*: for a row its
   host; for a migration that is set to failed both of its ends; for a start of nova-compute its host, about each device
   that a guest has there. Without one the verdict is *undecided*, and names the host. So is it for advice to start.
2. A repair that does only what that host's nova-compute does by itself when it starts, before it offers anything,
   needs no answer while the host is down (``questions._spared``).
3. "In use" is believed of every answer, incomplete ones too. "Not in use" is believed only of a complete answer of a
   machine that proves to be that host: libvirt is there, and the function, with the row's vendor and product; and the
   machine's own name is the host's, since all hosts of a rack have the same devices at the same addresses.
4. What is missing of an answer the operator can replace, for a host that he names (``--gone``), and for no other.
5. On a host where an instance lacks a device, or where a row is written as Nova can't read it, nova-compute is not
   started, and nobody is advised to start it. Nor is one stopped or restarted that works on a move or a task.

``questions.prepared`` is called for every verdict of every class; ``apply`` refuses what did not pass through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from gpustack.cleanup.clock import HostState
from gpustack.cleanup.hypervisor import UNKNOWN, Ask, Usage
from gpustack.cleanup.repair import Change
from gpustack.cleanup.verdict import Question, Status, Verdict
from gpustack.hostnames import short


def answers(verdict: Verdict, ask: Ask, gone: Iterable[str] = ()) -> dict[str, Usage]:
    """The answers of all hosts that a verdict asks.

    :param gone: hosts that the operator declared gone. They are asked all the same: a device in use is believed.
    """
    declared = frozenset(gone)
    usages = {host: ask(host) for host in verdict.asks}
    return {host: replace(usage, gone=True) if host in declared else usage for host, usage in usages.items()}


def settle(verdict: Verdict, usages: Mapping[str, Usage]) -> Verdict:
    """The verdict after the answers: as it is, or *report* where a device is in use, or *undecided*."""
    questions = verdict.questions
    if verdict.status is not Status.STALE and not verdict.then:
        return verdict
    if questions is None:
        return _withdrawn(verdict, Status.UNDECIDED, "the hosts to ask are not known: a fault of gpustack")
    used = [text for question in questions for text in _in_use(question, usages.get(question.host, _NOBODY))]
    if used:
        return _withdrawn(verdict, Status.REPORT, "; ".join(used), advice="settle what the hosts report first")
    missing = {q.host: text for q in questions if (text := _missing(q, usages.get(q.host, _NOBODY)))}
    if missing:
        return _withdrawn(verdict, Status.UNDECIDED, "; ".join(missing.values()), advice=_remedy(missing))
    witness = tuple(witnesses(verdict, usages))
    return replace(verdict, evidence=(*verdict.evidence, *witness), advice=verdict.then or verdict.advice, then="")


def witnesses(verdict: Verdict, usages: Mapping[str, Usage]) -> Iterator[str]:
    """Whose word the repair relies on, host by host."""
    for question in verdict.questions or ():
        usage = usages.get(question.host, _NOBODY)
        if not (reason := _unproved(question, usage)):
            yield f"{question.host}: no guest uses a device that may become free"
        elif usage.gone and not _contradicted(question, usage):
            yield f"{question.host}: declared gone by the operator (--gone); {reason}"
        else:
            yield f"{question.host}: not asked with success ({reason}), and {question.spared}"


def unstopped(verdict: Verdict) -> str:
    """What to do before the repair, where nova-compute has to be stopped and is not; empty where nothing is.

    One that is "down", or has no service any more, may only be cut off, with the rows still in its memory.
    """
    if not verdict.stop or verdict.host_state is HostState.STOPPED:
        return ""
    return f"stop nova-compute on {verdict.host} first, then add --stopped {verdict.host}"


def misnamed(usage: Usage, host: str, expected: frozenset[str]) -> str:
    """Why an answer is another machine's, which DNS or a jump host led to; empty where nothing shows that."""
    if not usage.names or {short(name) for name in usage.names} & expected:
        return ""
    return f"the machine that answered as {host} calls itself {', '.join(sorted(usage.names))}"


def permits(verdict: Verdict, changes: Iterable[Change]) -> bool:
    """Whether a repair offers no other device than those that the hosts were asked about."""
    offered = {str(change.seen["address"]).lower() for change in changes if change.new.get("status") == "available"}
    named = {address for question in verdict.questions or () for address in (*question.offered, *question.near)}
    return offered <= named


_NOBODY = Usage(gap="the host was not asked")


def _in_use(question: Question, usage: Usage) -> Iterator[str]:
    """Why the repair would hurt a guest, by an answer however incomplete."""
    host = question.host
    if question.state is HostState.STOPPED and usage.nova_compute:
        yield f"nova-compute runs on {host}, which --stopped names: stop it"
    for address, users in sorted(usage.users.items()):
        if not users:
            continue
        users_text = ", ".join(sorted(user or "an unknown process" for user in users))
        counted = question.by is None or users & question.by
        if (address in question.offered or address in question.near) and counted:
            yield f"the hypervisor of {host} reports {address} in use by {users_text}"
        elif question.absent is not None and question.absent in users:
            yield f"the hypervisor of {host} reports {address} in use by {users_text}, which is not placed there"
        elif question.kept is not None and not _stays(question, usage, address, users):
            yield f"{address} on {host} is in use by {users_text}, and nova-compute would offer it when it starts"
    for uuid, addresses in question.resident.items():
        if not usage.gap and not any(uuid in usage.users.get(address, ()) for address in addresses):
            yield (
                f"instance {uuid} does not run on {host}, and its live migration ended in error: when nova-compute "
                "starts, it may start the instance a second time"
            )


def _stays(question: Question, usage: Usage, address: str, users: frozenset[str]) -> bool:
    owner = (question.kept or {}).get(address)
    if owner is not None:
        return users <= {owner, UNKNOWN}
    model = usage.functions.get(address)
    return model is not None and model not in question.rows.values()  # a device that Nova does not manage


def _missing(question: Question, usage: Usage) -> str:
    """What keeps the answer from being a proof; empty where it is one, or none is needed."""
    reason = _unproved(question, usage)
    if not reason or question.spared:
        return ""
    return _contradicted(question, usage) if usage.gone else reason


def _unproved(question: Question, usage: Usage) -> str:
    if usage.gap:
        return f"{question.host} could not be asked: {usage.gap}"
    if stranger := misnamed(usage, question.host, question.names):
        return stranger
    if question.younger is not None and (usage.age is None or usage.age >= question.younger):
        moment = f"{question.younger.total_seconds():.0f} seconds ago"
        return f"{question.host} does not show that its nova-compute started after the migration was written, {moment}"
    for address, model in sorted(question.offered.items()):
        actual = usage.functions.get(address)
        if actual != model:
            present = f"{actual} there" if actual else "no such function"
            machine = f"the machine that answered as {question.host} does not prove to be it"
            return f"{machine}: {address} is {model} by its row, and the machine has {present}"
    if question.rows and not question.rows.items() & usage.functions.items():
        return f"the machine that answered as {question.host} has none of the devices of its rows"
    return ""


def _contradicted(question: Question, usage: Usage) -> str:
    """Why a host is not gone; one that was reinstalled answers, and the operator vouches for what it does not prove."""
    unheard = usage.gap or question.younger is not None or misnamed(usage, question.host, question.names)
    if unheard and question.state in (HostState.UP, HostState.STOPPED):
        runs = "reports" if question.state is HostState.UP else "is to be started again"
        return f"{question.host} is not gone, contrary to --gone: its nova-compute {runs}"
    return ""


def _remedy(missing: Mapping[str, str]) -> str:
    hosts = ", ".join(missing)
    options = " ".join(f"--gone {host}" for host in missing)
    return (
        f"make {hosts} reachable over SSH for root (or with --sudo) and apply again; if a host is fenced, scrapped or "
        f"reinstalled, and no guest can run on it, replace its answer with {options}"
    )


def _withdrawn(verdict: Verdict, status: Status, because: str, advice: str = "") -> Verdict:
    if verdict.then:  # advice to start nova-compute: the report itself stays
        return replace(verdict, advice=f"do not restart nova-compute: {because}", then="")
    return replace(verdict, status=status, because=because, repair=None, stop=False, advice=advice)
