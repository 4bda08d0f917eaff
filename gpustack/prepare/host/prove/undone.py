"""Verify that an undo has removed all effects of gpustack from a host."""

import functools
from collections.abc import Iterator
from pathlib import PurePosixPath

from gpustack.base.findings import Code, Severity
from gpustack.hosts.facts.gpus import gpus
from gpustack.hosts.facts.model import Host
from gpustack.prepare.host.decide.virtual_functions import left
from gpustack.prepare.host.foreign_config import Elsewhere, elsewhere
from gpustack.prepare.host.own_files import ADOPTED, AGAIN, DRACUT_SCRIPT, JOURNAL, MODPROBE, OWNED, SCRIPT, is_ours
from gpustack.prepare.host.prove.checks import HostCheck, Images, judged, unknown
from gpustack.prepare.host.prove.verify import Verification, verification
from gpustack.prepare.host.undo import still_kept, too_many

_IN_IMAGE = (
    MODPROBE,
    SCRIPT.removeprefix("/etc/initramfs-tools"),
    f"-{PurePosixPath(DRACUT_SCRIPT).name}",  # dracut adds a number before the name of a hook
)


def verify_undone(host: Host, initramfs: Images | None) -> Verification:
    """Check that a running host has no files, arguments, initramfs content or bindings of gpustack.

    :param initramfs: as in :func:`gpustack.prepare.host.prove.verify.verify_host`.
    """
    other = elsewhere(host)
    checks = (
        *_files(host),
        *_arguments(host, other),
        *_images(host, initramfs),
        *_drivers(host, other),
        *_virtual_functions(host),
    )
    return verification(host, checks)


_check = functools.partial(judged, Code.VERIFY_TRACE_LEFT)


def _files(host: Host) -> Iterator[HostCheck]:
    for path in (*OWNED, ADOPTED, AGAIN, JOURNAL):
        file = host.files.get(path)
        is_left = file is not None and is_ours(file.text)
        observed = "there is none" if file is None else "it is somebody else's"
        what = "there is no such file of gpustack's"
        yield _check(what, host.at(path), "it is still there" if is_left else None, observed)


def _arguments(host: Host, other: Elsewhere) -> Iterator[HostCheck]:
    lines = [("the running kernel has no argument of gpustack's", "/proc/cmdline", host.kernel.command_line)]
    lines += [
        (f"the menu entry {entry.title!r} has no argument of gpustack's", entry.source, entry.arguments)
        for entry in host.boot.entries
    ]
    for what, path, text in lines:
        place = host.at(path)
        if text is None:
            yield unknown(what, place, "it could not be read", Severity.WARNING)
        else:
            surplus = too_many(host, other, text)
            yield _check(what, place, f"it has {', '.join(surplus)}" if surplus else None)


def _images(host: Host, images: Images | None) -> Iterator[HostCheck]:
    for kernel in host.boot.kernels:
        what = f"the initramfs of Linux {kernel.release} has nothing of gpustack's"
        place = host.at(kernel.initramfs or kernel.release)
        image = None if images is None else images.get(kernel.release)
        if image is None or "error" in image:
            yield unknown(what, place, "it was not read" if image is None else str(image["error"]), Severity.WARNING)
        else:
            remaining = [path for path in image.get("files", {}) if path.endswith(_IN_IMAGE)]
            yield _check(what, place, f"it has {', '.join(remaining)}" if remaining else None)


def _drivers(host: Host, other: Elsewhere) -> Iterator[HostCheck]:
    still_bound = {function.address: function for function in still_kept(host, other)}
    functions = {f.address: f for gpu in gpus(host) for f in gpu.functions} | still_bound
    for address, function in sorted(functions.items()):
        driver = function.driver or "no driver"
        fault = f"it is on {driver}" if address in still_bound else None
        yield _check("it is not bound for passthrough", host.at(address), fault, f"it is on {driver}")


def _virtual_functions(host: Host) -> Iterator[HostCheck]:
    for card in left(host):
        yield _check("it has no virtual functions by gpustack", host.at(card.address), f"it has {card.sriov_numvfs}")
