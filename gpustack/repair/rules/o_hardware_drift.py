"""Class O: rows that differ from the host's hardware or from its device_spec.

nova-compute compares its rows with the hypervisor only when it starts (``nova/pci/manager.py``,
``update_devices_from_hypervisor_resources``). Even then it neither changes nor removes the row of a taken device.
Causes: a device failed or was moved to another slot, became an SR-IOV function (bug 1892361), or device_spec was
edited. With PCI in Placement, an allocated device cannot be removed at all (bug 2115905). The host's side comes from
:mod:`gpustack.novadb.hardware`.
"""

from collections.abc import Iterator

from gpustack.novadb.hardware import Hardware, Present
from gpustack.novadb.model import PciRow
from gpustack.novadb.view import Clock, NodeView
from gpustack.repair.evidence import Case, about, node_words
from gpustack.repair.verdict import Status, Verdict

CLASS = "O"
TITLE = "not what the host has"

_RESTART = "when the host has the right devices, restart nova-compute: it removes a free row, and adds a right one"
_TAKEN = "look at the instance's domain; cold-migrate it away, or give the host its device back"
_GONE = "restart nova-compute, which starts defined devices; if one is still missing, cold-migrate the instance"
_UNUSED = "nothing is needed: Nova gives a device to the next instance of its type; gpustack removes none"


def judge(view: NodeView, clock: Clock) -> Iterator[Verdict]:
    """Yield verdicts on live rows that contradict hardware or device_spec, offered devices without a row, and vGPUs."""
    if (hardware := view.hardware) is None:
        return
    for row in view.rows:
        drift = _drift(row, hardware) if row.live else None
        if drift is None:
            continue
        case = Case(klass=CLASS, title=TITLE, view=view, clock=clock, rows=(row,))
        written = row.changed_at
        looked = hardware.read_at and hardware.read_at.replace(microsecond=0)  # most databases store whole seconds
        if looked is not None and written is not None and written >= looked:
            yield case.judged(Status.UNDECIDED, f"{drift}; but the row was written after the host was looked at")
        else:
            taken = row.taken or row.instance_uuid is not None
            yield case.judged(Status.REPORT, drift, advice=_TAKEN if taken else "", then=_RESTART)
    yield from _vgpus(view, clock, hardware)
    missing = sorted((hardware.offered or frozenset()) - {address.lower() for address in view.by_address})
    if missing:
        yield Verdict(
            **about(CLASS, TITLE, view, clock),
            status=Status.REPORT,
            evidence=(
                *(f"{address} is {_words(hardware.present[address])}" for address in missing),
                node_words(view, clock),
            ),
            because=f"device_spec offers {', '.join(missing)}, of which there is no row",
            then="restart nova-compute: it makes the rows when it starts",
        )


def _vgpus(view: NodeView, clock: Clock, hardware: Hardware) -> Iterator[Verdict]:
    """Yield verdicts on mediated devices, which have no rows: nothing proves that one can be removed."""
    found: list[tuple[str | None, str, str, str]] = [
        (uuid, f"libvirt's domain of {uuid} has {' and '.join(devices)}", "the host lacks mediated devices", _GONE)
        for uuid, devices in hardware.gone.items()
    ]
    if hardware.unused:
        devices = f"the host has the mediated devices {', '.join(hardware.unused)}"
        found.append((None, devices, "no process and no domain of libvirt has them", _UNUSED))
    for owner, evidence, because, advice in found:
        yield Verdict(
            **about(CLASS, TITLE, view, clock),
            status=Status.REPORT,
            owner=owner,
            evidence=(evidence, node_words(view, clock)),
            because=because,
            advice=advice,
        )


def _drift(row: PciRow, hardware: Hardware) -> str | None:
    """Return how the hardware contradicts a row; None if it does not."""
    if (present := hardware.present.get(row.address.lower())) is None:
        return f"the host has no device at {row.address}"
    if (present.vendor_id, present.product_id) != (row.vendor_id.lower(), row.product_id.lower()):
        return f"the host has another device at {row.address}: {_words(present)}"
    # The kernel shows a vDPA device as a virtual function.
    if present.dev_type != row.dev_type and (row.dev_type, present.dev_type) != ("vdpa", "type-VF"):
        return f"{row.address} is of {present.dev_type} now: SR-IOV was switched on or off"
    if hardware.offered is not None and row.address.lower() not in hardware.offered:
        return f"no entry of device_spec matches {row.address} any more"
    return None


def _words(present: Present) -> str:
    return f"{present.vendor_id}:{present.product_id}, {present.dev_type}"
