"""Render the files that gpustack owns on a host from the templates."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gpustack.base.errors import PlanError
from gpustack.base.files import templates
from gpustack.base.text import quoted
from gpustack.linux.cmdline import is_plain
from gpustack.prepare.host import own_files
from gpustack.prepare.host.decide.binding import Binding

if TYPE_CHECKING:
    import jinja2


def render(arguments: Iterable[str], binding: Binding, *, dracut: bool = False) -> dict[str, own_files.OwnedFile]:
    """Return the desired files by path, without files that would be empty.

    :param arguments: the kernel arguments that gpustack adds to GRUB's defaults.
    :param dracut: whether dracut, not initramfs-tools, builds the initramfs.
    :raises PlanError: if a value has characters that are not safe in files of a shell or of modprobe.
    """
    files: dict[str, own_files.OwnedFile] = {}
    if arguments := tuple(arguments):
        files[own_files.GRUB] = file("kernel arguments", "grub.cfg.j2", arguments=arguments)
    lines: dict[str, Any] = {name: getattr(binding, name) for name in ("options", "softdeps", "blacklist")}
    if any(lines.values()):
        files[own_files.MODPROBE] = file("the devices for passthrough", "modprobe.conf.j2", **lines)
    files |= _dracut(binding, files) if dracut else _initramfs_tools(binding)
    if binding.late_modules:
        why = "loads the passthrough drivers if the initramfs has not loaded them"
        files[own_files.MODULES_LOAD] = file(why, "modules-load.conf.j2", modules=binding.late_modules)
    return files


def render_virtual_functions(
    cards: Iterable[Iterable[str]], network_cards: Iterable[Iterable[str]] = ()
) -> dict[str, own_files.OwnedFile]:
    """Return the files that create virtual functions at boot, by path; none without physical functions.

    Network cards have a unit of their own: it runs before the network starts, that of the others after their drivers'
    services.

    :param cards: address, vendor, product, number and vGPU type (or ``-``) of each physical function, of any class.
    :param network_cards: the same of network cards.
    """
    cards, network_cards = tuple(cards), tuple(network_cards)
    units = {}
    if network_cards:
        why = "runs that script for network cards before the network starts"
        units[own_files.VFS_NETWORK_UNIT] = file(why, "network-functions.service.j2", script=own_files.VFS_SCRIPT)
    if cards:
        why = "runs that script before libvirt and nova-compute start"
        units[own_files.VFS_UNIT] = file(why, "virtual-functions.service.j2", script=own_files.VFS_SCRIPT)
    if not units:
        return {}
    script = "virtual-functions.sh.j2"
    why = f"starts {'these units' if len(units) > 1 else 'that unit'} at boot"
    return {
        own_files.VFS_SCRIPT: file(
            "creates virtual functions", script, "0755", functions=cards, network_cards=network_cards
        ),
        **units,
        own_files.VFS_AT_BOOT: file(
            why, "virtual-functions.conf.j2", units=[path.rpartition("/")[2] for path in units]
        ),
    }


def render_record(lines: Iterable[str]) -> str:
    """The record of kernel arguments that gpustack added to files of others; each line is a place and an argument."""
    return file("", "arguments.j2", lines=[line.split(" ", 1) for line in lines]).content


def render_image(
    arguments: Iterable[str], files: Mapping[str, own_files.OwnedFile]
) -> tuple[dict[str, own_files.OwnedFile], str]:
    """The files of an image, by path, and the lines for its Containerfile.

    :param arguments: all kernel arguments of gpustack.
    :param files: the other files.
    """
    kargs = file("", "kargs.toml.j2", arguments=tuple(arguments))
    complete = {**files, own_files.KARGS: kargs} if kargs.content.count('"') else dict(files)
    directories = sorted({path.split("/")[1] for path in complete})
    return complete, _environment().get_template("containerfile.j2").render(directories=directories)


_BY_ADDRESS = "devices that are bound by address"
_LOADED = "loads the passthrough drivers in the initramfs, before any host driver"


def _initramfs_tools(binding: Binding) -> dict[str, own_files.OwnedFile]:
    files = {}
    if binding.by_address:
        devices = [device.words for device in binding.by_address]
        files[own_files.SCRIPT] = file(_BY_ADDRESS, "initramfs-script.sh.j2", "0755", devices=devices)
    if binding.early_modules:
        files[own_files.HOOK] = file(_LOADED, "initramfs-hook.sh.j2", "0755", modules=binding.early_modules)
    return files


def _dracut(binding: Binding, others: Container[str]) -> dict[str, own_files.OwnedFile]:
    files = {}
    if binding.by_address:
        devices = [device.words for device in binding.by_address]
        files[own_files.DRACUT_SCRIPT] = file(_BY_ADDRESS, "dracut-script.sh.j2", "0755", devices=devices)
        files[own_files.DRACUT_MODULE] = file("puts that script into the initramfs", "dracut-module.sh.j2", "0755")
    items = [own_files.MODPROBE] if own_files.MODPROBE in others else []
    if binding.early_modules or items or files:
        files[own_files.DRACUT] = file(
            _LOADED, "dracut.conf.j2", modules=binding.early_modules, items=items, by_address=bool(files)
        )
    return files


_Value = bool | str | int | Iterable[str] | Iterable[Iterable[str]] | Mapping[str, Iterable[str]]


def file(why: str, template: str, mode: str = "0644", **values: _Value) -> own_files.OwnedFile:
    """Render one file.

    :param why: its purpose, for messages.
    """
    return own_files.OwnedFile(
        content=own_files.sealed(_environment().get_template(template).render(values)), mode=mode, why=why
    )


@functools.cache
def _environment() -> jinja2.Environment:
    environment = templates("host", autoescape=False, keep_trailing_newline=True)
    environment.filters["plain"] = _plain
    environment.filters["quoted"] = quoted
    return environment


def _plain(text: str) -> str:
    if not is_plain(text):
        raise PlanError(
            f"{text!r} is not allowed in a configuration file: it has more than letters, digits and . , : = + @ / - _",
            remedy="check where this word comes from: the spec, or the snapshot of the host",
        )
    return text
