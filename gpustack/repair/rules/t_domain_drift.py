"""Class T: the devices that libvirt's domains use, compared with Nova's rows in both directions; report only.

The databases alone do not show it. A database error at the end of a spawn leaves an instance without a host while its
domain runs. Within two periodic tasks Nova offers its GPU to the next instance. Only the host shows the domain.

Hosts are asked before the rows are read. A row that changed in between is protected by the grace time.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from gpustack.base.text import quoted
from gpustack.novadb.model import PciRow
from gpustack.novadb.read import CellReader
from gpustack.novadb.view import Clock, NodeView, Owner
from gpustack.repair.evidence import Case, about, doubts, in_flight, node_words, owner_words, young
from gpustack.repair.hypervisor import Usage
from gpustack.repair.permission import misnamed
from gpustack.repair.questions import names
from gpustack.repair.rules._stuck import stuck
from gpustack.repair.rules._times import timely
from gpustack.repair.verdict import Status, Verdict, words

CLASS = "T"
TITLE = "the domains of the host and Nova's rows differ"
_PAGE = "the page of class T"
Find = Callable[[str | None], Owner | None]


def judge(
    reader: CellReader, clock: Clock, answers: Mapping[str, Usage], hosts: frozenset[str] | None = None
) -> Iterator[Verdict]:
    """Yield verdicts where the domains of the hosts that were asked and the rows of this cell contradict each other.

    :param answers: the answers by host; other hosts are left out.
    """
    for view in reader.views(hosts):
        usage = answers.get(view.node.host or "")
        if usage is None or view.node.deleted or view.unread:
            continue
        host, node = view.node.host or "", view.node.hypervisor_hostname
        if stranger := misnamed(usage, host, names(host, node)):
            yield _unasked(view, clock, stranger)
            continue
        if usage.gap:
            yield _unasked(view, clock, f"{host} could not be asked: {usage.gap}")
        find = _finder(reader, view)
        for verdict in (*_used(view, clock, usage, find), *_unused(view, clock, usage)):
            yield _still_moving(timely(verdict, view, clock, owner := find(verdict.owner)), view, clock, owner)


def _still_moving(verdict: Verdict, view: NodeView, clock: Clock, owner: Owner | None) -> Verdict:
    """Return the verdict; *report* if only work that nothing continues protects it."""
    if verdict.status is not Status.PROTECTED:
        return verdict
    if (dead := stuck(verdict, view, clock, owner)).status is not Status.PROTECTED:
        return replace(verdict, status=Status.REPORT, because=f"{verdict.because}; {dead.because}")
    return replace(verdict, advice="")


def _finder(reader: CellReader, view: NodeView) -> Find:
    """Find the owners of a compute node's rows, and the instances of domains that no row names; None without a uuid."""
    return functools.cache(lambda uuid: (view.owners.get(uuid) or reader.owner(uuid)) if uuid else None)


def _used(view: NodeView, clock: Clock, usage: Usage, find: Find) -> Iterator[Verdict]:
    """Yield verdicts on devices that a domain uses without a row that names its instance."""
    rows = {address.lower(): row for address, row in view.by_address.items()}
    known = {uuid for address, users in usage.users.items() if address in rows for uuid in users}
    for address, users in sorted(usage.users.items()):
        row = rows.get(address)
        for uuid in sorted(users):
            if row is None and uuid in known:
                continue  # another function, such as audio, of a card with a row
            owner = find(uuid)
            if (fault := _fault(view, address, row, owner)) is None:
                continue
            known.add(uuid)
            moving = [*in_flight(owner), *young(() if row is None else (row,), owner, clock)]
            status, because = Status.REPORT, fault
            if owner is not None and doubts(owner) and row is None:
                status = Status.UNDECIDED
            elif moving:
                status, because = Status.PROTECTED, f"{fault}; but {'; '.join(moving)}"
            case = Case(klass=CLASS, title=TITLE, view=view, clock=clock, rows=() if row is None else (row,))
            yield _verdict(case, status, owner, because, address, uuid)


def _fault(view: NodeView, address: str, row: PciRow | None, owner: Owner | None) -> str | None:
    """Return what is wrong with a device that a domain uses; None if nothing is."""
    user = f"the domain of {owner.uuid}" if owner is not None else "an unknown process"
    if row is None:
        if owner is None or owner.instance is None or (owner.on(view.node) and owner.requests == ()):
            return None  # Nova does not manage the device or the instance
        return f"{user} uses {address}, which has no row: nova-compute may offer it when it starts"
    if not row.taken:
        offers = "Nova offers it" if row.status == "available" else f"its row is {row.status}"
        return f"{user} uses {address}, and {offers}: one GPU may get two instances"
    if owner is None:
        return None  # domain unknown: it may be the row's owner
    if row.instance_uuid != owner.uuid:
        return f"{user} uses {address}, and by its row it belongs to {row.instance_uuid or 'nobody'}"
    if not owner.on(view.node):
        placed_on = owner.instance.host if owner.alive and owner.instance is not None else "nowhere: it does not exist"
        return f"{user} runs here with {address}, and Nova places it on {placed_on or 'no host'}"
    return None


def _unused(view: NodeView, clock: Clock, usage: Usage) -> Iterator[Verdict]:
    """Yield verdicts on devices of active instances that no domain uses; only from a complete answer."""
    if usage.gap:
        return
    for row in view.taken:
        owner = view.owners.get(row.instance_uuid or "")
        if owner is None or owner.instance is None or not owner.on(view.node) or usage.users.get(row.address.lower()):
            continue
        if owner.instance.vm_state != "active" or not _of_a_flavor(owner, row):
            continue  # a stopped instance keeps its devices
        because = f"instance {owner.uuid} is active here, and no domain uses {row.address}, which its row gives to it"
        moving = [*in_flight(owner), *young((row,), owner, clock)]
        status = Status.PROTECTED if moving else Status.REPORT
        case = Case(klass=CLASS, title=TITLE, view=view, clock=clock, rows=(row,))
        yield _verdict(case, status, owner, "; but ".join([because, *moving]), row.address, None)


def _of_a_flavor(owner: Owner, row: PciRow) -> bool:
    """Whether the device was requested by a flavor: that of a Neutron port may be in the domain as an interface."""
    ports = [request for request in owner.requests or () if request.alias_name is None]
    if row.dev_type == "vdpa" or owner.requests is None:
        return False
    return not ports or any(request.request_id == row.request_id and request.alias_name for request in owner.requests)


def _verdict(case: Case, status: Status, owner: Owner | None, because: str, address: str, user: str | None) -> Verdict:
    host = case.view.node.host
    usage = f"{host}: no domain uses {address}"
    advice = f"start or stop the instance, or hard-reboot it, until both agree: {_PAGE}"
    if user is not None:
        usage = f"{host}: {address} is in use by {user or 'an unknown process'}"
        advice = (
            f"at once: openstack compute service set --disable {quoted(host)} nova-compute; do not "
            f"restart nova-compute; then follow {_PAGE}"
        )
    return Verdict(
        **about(CLASS, TITLE, case.view, case.clock),
        status=status,
        rows=case.rows,
        owner=owner.uuid if owner is not None else None,
        evidence=(
            usage,
            words(case.rows[0]) if case.rows else f"{address} has no row",
            *(() if owner is None else (owner_words(owner),)),
            node_words(case.view, case.clock),
        ),
        because=because,
        advice=advice,
    )


def _unasked(view: NodeView, clock: Clock, because: str) -> Verdict:
    return Verdict(
        **about(CLASS, TITLE, view, clock),
        status=Status.UNDECIDED,
        evidence=(node_words(view, clock),),
        because=because,
        advice=f"make it reachable over SSH for root, or with --sudo: gpustack cleanup plan --ask-hosts --host "
        f"{quoted(view.node.host)}",
    )
