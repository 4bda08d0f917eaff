"""Find the entry of ``out_of_service`` by the names that Nova and hosts have for a GPU."""

from collections.abc import Collection, Iterable, Mapping

from gpustack.base.by_key import by_key
from gpustack.base.hostnames import may_be_of_one_machine, short
from gpustack.spec.model import OutOfService


def by_machine(entries: Iterable[OutOfService]) -> dict[str, list[OutOfService]]:
    """The entries by the :func:`short` name of their host, for :func:`entry_of`."""
    return by_key((short(entry.host), entry) for entry in entries)


def entry_of(
    entries: Mapping[str, Collection[OutOfService]], hosts: Collection[str], address: str, serial: str | None = None
) -> OutOfService | None:
    """The entry of a GPU; None if it is in service.

    A wrong "same host" only adds a reason to a list or refuses a command; it never offers a GPU.

    :param entries: the entries of the spec, as :func:`by_machine` returns them.
    :param hosts: the names of its host.
    :param serial: its serial number; None if unknown.
    """
    for entry in (entry for name in sorted({*map(short, hosts)}) for entry in entries.get(name, ())):
        same_card = entry.address == address or (entry.serial is not None and entry.serial == serial)
        if same_card and may_be_of_one_machine({entry.host}, hosts):
            return entry
    return None
