"""Volumes whose key the TPM releases only for the measured boot, which a plan changes.

Measured by GRUB (``grub-core/commands/tpm.c``): its commands and the kernel's command line into PCR 8, the files that
it reads (``grub.cfg``, kernel, initramfs) into PCR 9. By systemd (``man:systemd-boot``, "TPM2 PCR Measurements Made by
systemd"): the command line into PCR 12; the kernel's own stub measures the initramfs into PCR 9
(``drivers/firmware/efi/libstub/efi-stub-helper.c``).
"""

from collections.abc import Iterable, Iterator

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.operations import Operation, RunCommand
from gpustack.hosts.facts.model import Host

_INITRAMFS = frozenset({"update-initramfs", "dracut", "mv"})
_MEASURED = {
    "grub": {"menu": frozenset({8, 9}), "initramfs": frozenset({9})},
    "systemd-boot": {"menu": frozenset({9, 12}), "initramfs": frozenset({9})},
}


def changed(host: Host, operations: Iterable[Operation]) -> frozenset[int]:
    """The PCRs that the next boot has with other values because of a plan's commands."""
    measured = _MEASURED.get(host.boot.loader or "", {"menu": frozenset(range(24)), "initramfs": frozenset(range(24))})
    registers: frozenset[int] = frozenset()
    for operation in operations:
        if isinstance(operation, RunCommand):
            registers |= measured["initramfs" if operation.argv[0] in _INITRAMFS else "menu"]
    return registers


def findings(host: Host, operations: Iterable[Operation], *, accepted: bool) -> Iterator[Finding]:
    """Volumes that the next boot can't unlock by the TPM.

    :param accepted: whether the spec accepts it (``options.accept_tpm``).
    """
    registers = changed(host, operations)
    if accepted or not registers or not host.tpm.present:
        return
    for volume in host.tpm.volumes:
        place = host.at(volume.device)
        if volume.unknown is not None:
            yield finding(Code.TPM_BINDING_UNKNOWN, place=place, name=volume.name, reason=volume.unknown)
        bound = sorted({pcr for token in volume.tokens for pcr in token.pcrs} & registers)
        kinds = ", ".join(dict.fromkeys(token.type for token in volume.tokens if registers & set(token.pcrs)))
        if bound:
            names = ", ".join(map(str, bound))
            yield finding(Code.TPM_WOULD_NOT_UNLOCK, place=place, name=volume.name, kinds=kinds, pcrs=names)
