"""The chain of records that leads to a GPU, and its first broken link. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpustack.base.columns import Column
from gpustack.base.findings import Code, Finding, finding

if TYPE_CHECKING:
    from gpustack.novadb.as_stored import Record
    from gpustack.novadb.model import Request

_CODES = {"row": Code.WHY_ROW_LACKS_GPU, "Placement": Code.WHY_PLACEMENT_LACKS_GPU, "domain": Code.WHY_DOMAIN_LACKS_GPU}
"""The findings about the links of an instance's GPU, in the order of Nova's work."""


@dataclass(frozen=True, kw_only=True)
class Chain:
    """A GPU in each record; a record that was not read is None.

    :ivar address: empty for a GPU that no record has.
    """

    address: str = ""
    records: Mapping[str, bool | None]

    @property
    def broken(self) -> str:
        """The first record that lacks it; empty if none is known to."""
        return next((name for name, has in self.records.items() if has is False), "")


@dataclass(frozen=True, kw_only=True)
class HeldGpu(Chain):
    """A GPU of an instance: whether the row, Placement and the domain have it.

    :ivar alias: of the PCI request; empty if unknown.
    """

    instance: str
    alias: str = ""

    @property
    def finding(self) -> Finding | None:
        """The broken link with its fix."""
        if not self.broken:
            return None
        have = [name for name, has in self.records.items() if has]
        code, others = _CODES[self.broken], (f"it is in: {', '.join(have)}" if have else "no record has it")
        return finding(code, place=f"{self.instance} {self.address}".strip(), others=others, instance=self.instance)


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


def _mark(name: str) -> Column[Chain]:
    return Column(name.lower().replace(" ", "_"), lambda gpu: gpu.records[name], name.capitalize())


_ADDRESS: Column[Chain] = Column("address", lambda gpu: gpu.address or None, "Address")
_BROKEN: Column[Chain] = Column("broken", lambda gpu: gpu.broken or None, "Broken link")
COLUMNS: tuple[Column[HeldGpu], ...] = (
    _ADDRESS,
    Column("alias", lambda gpu: gpu.alias or None, "Alias"),
    *map(_mark, _CODES),
    _BROKEN,
)

HOST, SPEC, READY, BOUND, DEVICE_SPEC, ROW, PLACEMENT, SERVICE, IN_SERVICE = HOST_LINKS = (
    *("host", "spec", "ready", "bound", "device_spec", "row", "Placement", "service", "in service"),
)
"""The links from the hardware to new instances, in their order."""
_HOST_CODES = {
    HOST: Code.WHY_HOST_LACKS_GPU,
    SPEC: Code.WHY_NOT_ASSIGNED,
    DEVICE_SPEC: Code.WHY_DEVICE_SPEC_LACKS_GPU,
    ROW: Code.WHY_NO_ROW,
    PLACEMENT: Code.WHY_PLACEMENT_OFFERS_NOT,
    IN_SERVICE: Code.WHY_OUT_OF_SERVICE,
}
_BY_CHOICE = (SPEC, IN_SERVICE)
"""Links that an operator has broken deliberately."""


@dataclass(frozen=True, kw_only=True)
class HostGpu(Chain):
    """A GPU of a host, from the hardware to new instances.

    :ivar state: as ``gpu list`` has it; empty if neither Nova nor Placement has it.
    :ivar because: why it is out of service.
    :ivar reasons: why it can't be passed through, and why its host offers none.
    """

    host: str
    model: str = ""
    state: str = ""
    because: str = ""
    reasons: Sequence[Finding] = field(default_factory=tuple)

    @property
    def is_broken(self) -> bool:
        """Whether a link is broken that should not be."""
        return bool(self.broken) and self.broken not in _BY_CHOICE

    @property
    def findings(self) -> Sequence[Finding]:
        """The broken link with its fix."""
        if (code := _HOST_CODES.get(self.broken)) is None:
            return self.reasons if self.broken else ()
        place = f"{self.host} {self.address}"
        return (finding(code, place=place, host=self.host, address=self.address, because=self.because),)


HOST_COLUMNS: tuple[Column[HostGpu], ...] = (
    _ADDRESS,
    Column("model", lambda gpu: gpu.model or None, "Model"),
    *map(_mark, HOST_LINKS),
    Column("state", lambda gpu: gpu.state or None, "State"),
    _BROKEN,
)


def counts(gpus: Sequence[HostGpu]) -> str:
    """The number of GPUs that reach each link; a link that is unknown for all is left out."""
    names = {
        HOST: "in the host",
        READY: "ready",
        DEVICE_SPEC: "in device_spec",
        ROW: "in Nova",
        PLACEMENT: "in Placement",
    }
    texts = []
    for name, text in names.items():
        known = [gpu.records[name] for gpu in gpus if gpu.records[name] is not None]
        hint = " (restart nova-compute)" if any(gpu.broken == name == ROW for gpu in gpus) else ""
        texts += [f"{sum(map(bool, known))} {text}{hint}"] if known else []
    sound = [gpu.state or "unknown" for gpu in gpus if not gpu.broken]
    free, unknown = sound.count("free"), sound.count("unknown")
    texts += [f"{free} free"] if free or not unknown else []
    return ", ".join([*texts, *([f"{unknown} of unknown state"] if unknown else [])])
