"""The chain of records that leads to a GPU, and its first broken link. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpustack.base.columns import Column
from gpustack.base.findings import Code, Finding, finding

if TYPE_CHECKING:
    from gpustack.novadb.as_stored import Record
    from gpustack.novadb.model import Request

_CODES = {
    "row": Code.WHY_ROW_LACKS_GPU,
    "Placement": Code.WHY_PLACEMENT_LACKS_GPU,
    "domain": Code.WHY_DOMAIN_LACKS_GPU,
}
"""The findings about the links of an instance's GPU, in the order of Nova's work."""


@dataclass(frozen=True, kw_only=True)
class HeldGpu:
    """A GPU of an instance in each record; a record that was not read is None.

    :ivar address: empty for a GPU that no record has.
    :ivar alias: of the PCI request; empty if unknown.
    :ivar records: whether the row, Placement and the domain have it.
    """

    instance: str
    address: str = ""
    alias: str = ""
    records: Mapping[str, bool | None]

    @property
    def broken(self) -> str:
        """The first record that lacks it; empty if none is known to."""
        return next((name for name, has in self.records.items() if has is False), "")

    @property
    def finding(self) -> Finding | None:
        """The broken link with its fix."""
        if not self.broken:
            return None
        have = [name for name, has in self.records.items() if has]
        return finding(
            _CODES[self.broken],
            place=f"{self.instance} {self.address}".strip(),
            others=f"it is in: {', '.join(have)}" if have else "no record has it",
            instance=self.instance,
        )


def held_gpus(
    instance: str,
    wanted: Mapping[str, int],
    rows: Sequence[Record] | None,
    requests: Sequence[Request],
    allocated: Collection[str] | None,
    used: Collection[str] | None,
) -> Iterator[HeldGpu]:
    """Yield each GPU of an instance, then those that are missing everywhere.

    :param wanted: the number of GPUs by alias.
    :param rows: the rows that name the instance; None if they were not read.
    :param requests: its PCI requests.
    :param allocated: the addresses that it has in Placement; None if Placement has no devices of its host.
    :param used: the addresses that its domain uses; None if its host was not asked.
    """
    aliases = {request.request_id: request.alias_name or "" for request in requests}
    owned = {str(row["address"]).lower(): row for row in rows or () if not row["deleted"]}
    # Placement has the physical functions of virtual ones.
    parents = {str(row.get("parent_addr") or "").lower() for row in owned.values()}
    addresses = sorted({*owned, *(set(allocated or ()) - parents), *(used or ())})
    for address in addresses:
        row = owned.get(address)
        parent = str(row.get("parent_addr") or "").lower() if row else ""
        yield HeldGpu(
            instance=instance,
            address=address,
            alias=aliases.get(row["request_id"], "") if row else "",
            records={
                "row": None if rows is None else row is not None,
                "Placement": None if allocated is None else not {address, parent}.isdisjoint(allocated),
                "domain": None if used is None else address in used,
            },
        )
    sources = {"row": rows, "Placement": allocated, "domain": used}
    if any(source is not None for source in sources.values()):
        for _missing in range(sum(wanted.values()) - len(addresses)):
            missing = {name: None if source is None else False for name, source in sources.items()}
            yield HeldGpu(instance=instance, records=missing)


def _mark(name: str) -> Column[HeldGpu]:
    return Column(name.lower(), lambda gpu: gpu.records[name], name)


COLUMNS: tuple[Column[HeldGpu], ...] = (
    Column("address", lambda gpu: gpu.address or None, "Address"),
    Column("alias", lambda gpu: gpu.alias or None, "Alias"),
    *map(_mark, _CODES),
    Column("broken", lambda gpu: gpu.broken or None, "Broken link"),
)
