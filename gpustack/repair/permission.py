"""Decide what the answers of hosts permit; :mod:`gpustack.repair.questions` determines the questions.

No other module decides this. The invariants:

1. A repair that may free a device needs an answer of *every host whose device it may free*. For a row that is its host.
   For a migration that is set to failed, both ends. For a start of nova-compute, its host, about each device that an
   instance uses there. Without an answer the verdict is *undecided* and names the host. The same holds for advice to
   start nova-compute.
2. No answer is needed for a repair on a host that is down, if nova-compute does the same when it starts, before it
   offers any device, and no instance there lacks a device (``questions._spared``).
3. "In use" is believed in every answer, including incomplete ones. "Not in use" is believed only in a complete answer
   from a machine that proves to be that host. It has libvirt, and the function with the row's vendor and product. The
   machine's name without domain is the host's, because all hosts of a rack have the same devices at the same addresses.
4. The operator can replace the missing part of an answer for a host named by ``--gone``, and for no other host.
5. nova-compute is not started, and no start is advised, on a host where an instance lacks a device or Nova cannot read
   a row. nova-compute is not stopped or restarted while it works on a migration or a task.

``questions.prepared`` is called for every verdict of every class; ``apply`` refuses a verdict without questions.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from gpustack.base.hostnames import may_be_of_one_machine
from gpustack.novadb.view import HostState
from gpustack.repair.hypervisor import UNKNOWN, Ask, Usage
from gpustack.repair.repair import Change
from gpustack.repair.verdict import Question, Repair, Status, Verdict


def answers(verdict: Verdict, ask: Ask, gone: Iterable[str] = ()) -> dict[str, Usage]:
    """Ask all hosts of a verdict and return their answers by host.

    :param gone: hosts that the operator declared gone. They are asked too: a device in use is believed.
    """
    declared = frozenset(gone)
    usages = {host: ask(host) for host in verdict.asks}
    return {host: replace(usage, gone=True) if host in declared else usage for host, usage in usages.items()}


def settle(verdict: Verdict, usages: Mapping[str, Usage]) -> Verdict:
    """Return the verdict after the answers.

    It is unchanged, *report* if a device is in use, or *undecided* if a proof is missing.
    """
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


def restarted(verdict: Verdict, usages: Mapping[str, Usage]) -> Verdict:
    """Return the verdict; *stuck* if the nova-compute of each host of its task started after the task's last write.

    Only for a task that only a nova-compute continues: none of them knows of it. A person must end it.
    """
    waiting = verdict.waiting
    if verdict.status is not Status.PROTECTED or waiting is None or not waiting.by_compute or not waiting.hosts:
        return verdict
    for host in waiting.hosts:
        usage = usages.get(host, _NOBODY)
        if usage.gap or misnamed(usage, host, frozenset({host})):
            return verdict
        if usage.age is None or usage.age >= waiting.younger:
            return verdict
    because = (
        f"{verdict.because}; nothing has been written since {waiting.since}, and nova-compute on "
        f"{' and '.join(waiting.hosts)} started later: it does not continue the task"
    )
    return replace(verdict, status=Status.STUCK, because=because, advice=waiting.advice, again=None)


def witnesses(verdict: Verdict, usages: Mapping[str, Usage]) -> Iterator[str]:
    """Yield, for each host, the proof on which the repair relies."""
    for question in verdict.questions or ():
        usage = usages.get(question.host, _NOBODY)
        if not (reason := _unproved(question, usage)):
            yield f"{question.host}: no guest uses a device that may become free"
        elif usage.gone and not _contradicted(question, usage):
            yield f"{question.host}: declared gone by the operator (--gone); {reason}"
        else:
            yield f"{question.host or 'no host'}: not asked with success ({reason}), and {question.spared}"


def unstopped(verdict: Verdict) -> str:
    """Return what to do first if nova-compute must be stopped and is not; empty if nothing.

    ``--stopped`` is required even if nova-compute is "down" or has no service: it may only be unreachable, with the
    rows still in its memory.
    """
    if not verdict.stop or verdict.host_state is HostState.STOPPED:
        return ""
    return f"stop nova-compute on {verdict.host} first, then add --stopped {verdict.host}"


def by_hand(verdict: Verdict) -> str:
    """Return what a person does for a permitted repair: the restart itself, or what comes first; empty if nothing."""
    restart = f"restart nova-compute on {verdict.host}; instances keep running"
    return restart if verdict.repair is Repair.RESTART else unstopped(verdict)


def misnamed(usage: Usage, host: str, expected: frozenset[str]) -> str:
    """Return why an answer is from another machine, such as after a wrong DNS entry; empty if nothing shows that."""
    if not usage.names or may_be_of_one_machine(usage.names, expected):
        return ""
    return f"the machine that answered as {host} calls itself {', '.join(sorted(usage.names))}"


def permits(verdict: Verdict, changes: Iterable[Change]) -> bool:
    """Whether the changes free no device other than those that the hosts were asked about."""
    offered = {str(change.seen["address"]).lower() for change in changes if change.new.get("status") == "available"}
    named = {address for question in verdict.questions or () for address in (*question.offered, *question.near)}
    return offered <= named


_NOBODY = Usage(gap="the host was not asked")


def _in_use(question: Question, usage: Usage) -> Iterator[str]:
    """Yield why the repair would harm an instance; an incomplete answer counts too."""
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
    if (owner := (question.kept or {}).get(address)) is not None:
        return users <= {owner, UNKNOWN}
    model = usage.functions.get(address)
    return model is not None and model not in question.rows.values()  # a device that Nova does not manage


def _missing(question: Question, usage: Usage) -> str:
    """Return what is missing from the answer; empty if it is a proof, or if none is needed."""
    reason = _unproved(question, usage)
    if not reason or question.spared:
        return ""
    return _contradicted(question, usage) if usage.gone else reason


def _unproved(question: Question, usage: Usage) -> str:
    if not question.host:
        return "the compute node has no host"
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
    """Return why a host cannot be gone; empty if it can.

    A reinstalled host answers; the operator vouches for the part that its answer does not prove.
    """
    unheard = usage.gap or question.younger is not None or misnamed(usage, question.host, question.names)
    if unheard and question.state in (HostState.UP, HostState.STOPPED, HostState.UNKNOWN):
        runs = {HostState.UP: "reports", HostState.STOPPED: "is to be started again"}.get(question.state, "may run")
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
    return verdict.withdrawn(status, because, advice)
