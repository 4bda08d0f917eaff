"""The facts about how a host boots: loader, menu, kernels, and the mounts that they are on."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from gpustack.hosts.facts.fields import Arguments, FactsModel, HostPath, KernelRelease, Line, Module, Number


class Submenu(FactsModel):
    """A submenu of GRUB's menu that contains an entry."""

    title: Line = ""
    id: Line | None = None


class MenuPlace(FactsModel):
    """The place of an entry in GRUB's menu; all fields are unknown from older collectors.

    :ivar position: the numbers that GRUB's variable ``default`` uses: ``0``, or ``1>2`` in a submenu.
    :ivar submenus: the submenus around the entry, the outermost first.
    :ivar script: the script in ``/etc/grub.d`` that wrote the entry.
    """

    title: Line = ""
    id: Line | None = None
    position: Line | None = None
    submenus: Annotated[tuple[Submenu, ...], Field(max_length=64)] = ()
    script: Line | None = None


class Menu(FactsModel):
    """GRUB's menu, without its entries of this system.

    :ivar generated: whether ``grub-mkconfig`` wrote it.
    :ivar complete: whether all its blocks and sections are closed.
    :ivar default: the value of the variable ``default``, unless an entry is chosen for one boot.
    :ivar default_script: the script in ``/etc/grub.d`` that set it.
    :ivar includes_custom: whether GRUB reads ``custom.cfg`` beside it.
    :ivar saves_default: whether an entry becomes the default when it boots (``GRUB_SAVEDEFAULT``).
    :ivar scripts: the scripts of ``/etc/grub.d`` with a section.
    :ivar others: the entries that do not boot this system's Linux.
    """

    generated: bool
    complete: bool
    default: Line | None = None
    default_script: Line | None = None
    includes_custom: bool = False
    saves_default: bool = False
    scripts: Annotated[tuple[Line, ...], Field(max_length=4096)] = ()
    others: tuple[MenuPlace, ...] = ()


class MenuScript(FactsModel):
    """An executable script in ``/etc/grub.d``."""

    path: HostPath
    mtime_ns: Number | None = None


class Mount(FactsModel):
    """The mount that a path is on; ``device`` as in :class:`BootEnvironment`. All values are None if it is unknown."""

    path: Line
    point: Line | None = None
    filesystem: Line | None = None
    options: tuple[Line, ...] = ()
    source: Line | None = None
    device: Literal["disk", "lvm", "raid", "crypt", "mapped"] | None = None


class EfiVariables(FactsModel):
    """The EFI variables of boot loader and stub (systemd.io/BOOT_LOADER_INTERFACE)."""

    loader: Line | None = None
    stub: Line | None = None
    selected: Line | None = None
    default: Line | None = None
    once: Line | None = None


class BootEntry(MenuPlace):
    """One entry of the boot menu as it stands for the next boots."""

    source: HostPath
    kernel: Line | None = None
    initrd: Line | None = None
    arguments: Arguments = ""
    recovery: bool = False

    @property
    def is_file(self) -> bool:
        """Whether it is a file (Boot Loader Specification), not an entry of GRUB's menu or of ``custom.cfg``."""
        return self.source.endswith(".conf")


class VfioAlias(FactsModel):
    """What a VFIO variant driver is for: a ``vfio_pci:`` alias of ``modules.alias`` and its module."""

    pattern: Line
    module: Module


class BootKernel(FactsModel):
    """A kernel that can boot; ``modules`` maps a module's name to ``module`` or ``builtin``.

    :ivar source: the image that kernel-install(8) copies it from: that of its package.
    :ivar vfio_aliases: the aliases of the kernel's VFIO variant drivers.
    """

    release: KernelRelease
    image: HostPath | None = None
    source: HostPath | None = None
    initramfs: HostPath | None = None
    initramfs_mtime_ns: Number | None = None
    modules: Mapping[Module, Literal["module", "builtin"]] = {}
    vfio_aliases: tuple[VfioAlias, ...] = ()


class BootEnvironment(FactsModel):
    """GRUB's environment block: what holds for one boot only.

    :ivar read: whether the menu reads it, and boots its ``next_entry`` once.
    :ivar device: what the file system is on: ``disk`` (partitions and multipath too), ``lvm``, ``raid``, ``crypt``,
        ``mapped`` (another device mapper target).
    """

    path: HostPath
    exists: bool
    read: bool
    saved_entry: Line | None = None
    next_entry: Line | None = None
    filesystem: Line | None = None
    device: Literal["disk", "lvm", "raid", "crypt", "mapped"] | None = None


class Boot(FactsModel):
    """How the host boots.

    :ivar unified: the unified kernel images (entries of type 2 of the Boot Loader Specification) that are there.
    :ivar tools: those of the boot loader's tools that are installed (``grubby``); libvirt, and its tool mdevctl.
    :ivar grubby_keeps_defaults: whether grubby knows ``--no-etc-grub-update``; None if unknown.
    :ivar bls: whether boot entries are files (Boot Loader Specification), not entries of GRUB's generated menu.
    :ivar environment: only where GRUB's menu is there.
    :ivar menu: GRUB's menu; None without one, and from older collectors.
    :ivar scripts: those that write the next menu.
    :ivar mounts: the mounts of ``/``, ``/etc``, ``/usr`` and the boot partitions; None from older collectors.
    :ivar kexec_loaded: whether a kernel is loaded that ``systemctl reboot`` starts without the boot loader.
    :ivar kexec_configured: whether kexec-tools loads one at each shutdown.
    :ivar next_root: whether ``/run/nextroot`` exists, which ``systemctl reboot`` starts without a new kernel.
    """

    firmware: Line | None = None
    loader: Line | None = None
    bls: bool = False
    unified: tuple[HostPath, ...] = ()
    entries: tuple[BootEntry, ...] = ()
    config_mtime: Number | None = None
    tools: tuple[Line, ...] = ()
    grubby_keeps_defaults: bool | None = None
    environment: BootEnvironment | None = None
    kernels: tuple[BootKernel, ...] = ()
    efi: EfiVariables = EfiVariables()
    menu: Menu | None = None
    scripts: Annotated[tuple[MenuScript, ...], Field(max_length=4096)] = ()
    mounts: Annotated[tuple[Mount, ...], Field(max_length=64)] | None = None
    kexec_loaded: bool | None = None
    kexec_configured: bool = False
    next_root: bool = False

    @property
    def ordinary(self) -> tuple[BootEntry, ...]:
        """The entries without those for recovery; files are before those of GRUB's menu, as ``blscfg`` adds them."""
        return tuple(sorted((e for e in self.entries if not e.recovery), key=lambda e: not e.is_file))


class VolumeToken(FactsModel):
    """A token in a LUKS2 header: ``systemd-tpm2``, ``clevis-tpm2``, ``clevis-tang``, …, with its PCRs."""

    type: Module
    pcrs: tuple[Number, ...] = ()


class Volume(FactsModel):
    """An open LUKS2 volume.

    :ivar device: the encrypted block device; ``name`` is the mapping above it.
    :ivar unknown: why its tokens could not be read.
    """

    device: HostPath
    name: Line
    tokens: tuple[VolumeToken, ...] = ()
    unknown: Line | None = None


class Tpm(FactsModel):
    """Whether the host has a TPM, and the encrypted volumes that it may unlock."""

    present: bool = False
    volumes: Annotated[tuple[Volume, ...], Field(max_length=64)] = ()
