"""The GPUs among the PCI functions of a guest."""

from typing import Any, Dict, Iterable, List, Optional, Sequence, Set, Tuple

Device = Dict[str, Any]
Ids = Tuple[str, str]

# All display controllers and processing accelerators: 0300, 0302 and 0380 are GPUs of one vendor or another.
GPU_CLASSES = ("03", "1200")


def gpus(functions: Iterable[Device], consoles: Sequence[Sequence[Optional[str]]]) -> List[Device]:
    """The first GPU function of each slot, without virtual displays.

    :param consoles: vendor and product of virtual displays and management controllers; ``None`` is any product.
    """
    chosen: List[Device] = []
    slots: Set[str] = set()
    for function in sorted(functions, key=lambda function: str(function["address"])):
        slot = function["address"].rpartition(".")[0]
        ids = (function["vendor"], function["product"])
        is_gpu = function["class"].startswith(GPU_CLASSES) and not _is_console(ids, consoles)
        if is_gpu and slot not in slots:
            slots.add(slot)
            chosen.append(function)
    return chosen


def _is_console(ids: Ids, consoles: Sequence[Sequence[Optional[str]]]) -> bool:
    """Whether these are the ids of a virtual display, of any class: QEMU's bochs-display is 0380, its VGA 0300."""
    return any(ids[0] == vendor and product in (None, ids[1]) for vendor, product in consoles)
