"""Find the entry of ``out_of_service`` by the names that Nova and hosts have for a GPU."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from gpustack.base.hostnames import may_be_of_one_machine

if TYPE_CHECKING:
    from gpustack.spec.model import OutOfService


def entry_of(
    entries: Collection[OutOfService], hosts: Collection[str], address: str, serial: str | None = None
) -> OutOfService | None:
    """The entry of a GPU; None if it is in service.

    A wrong "same host" only adds a reason to a list or refuses a command; it never offers a GPU.

    :param hosts: the names of its host.
    :param serial: its serial number; None if unknown.
    """
    for entry in entries:
        same_card = entry.address == address or (entry.serial is not None and entry.serial == serial)
        if same_card and may_be_of_one_machine({entry.host}, hosts):
            return entry
    return None
