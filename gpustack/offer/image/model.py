"""Images as Glance lists them, and the requirements of flavors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpustack.base.codes import Code
from gpustack.base.findings import Severity

OS_TYPE, MACHINE_TYPE, FIRMWARE = "os_type", "hw_machine_type", "hw_firmware_type"
HIDE, SECURE_BOOT = "img_hide_hypervisor_id", "os_secure_boot"
DRIVER, SIGNED = "gpustack_driver", "gpustack_modules_signed"
"""Properties by which whoever builds an image declares the NVIDIA driver that it contains, and signed modules."""
WINDOWS = "windows"
_RESEMBLES_WINDOWS = re.compile(r"windows|(?<![a-z])win[-_ ]?(?:\d|server)", re.IGNORECASE)
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
_TRUE = ("1", "t", "true", "on", "y", "yes")


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image.

    :ivar min_disk: the least root disk in GiB; 0 for any.
    :ivar min_ram: the least memory in MiB; 0 for any.
    :ivar size: bytes in Glance's store; 0 if unknown.
    :ivar virtual_size: bytes of the disk that the image describes; 0 if unknown.
    :ivar properties: all other properties, such as ``hw_machine_type``.
    """

    id: str
    name: str
    status: str = "active"
    visibility: str = "public"
    min_disk: int = 0
    min_ram: int = 0
    size: int = 0
    virtual_size: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def os_type(self) -> str | None:
        """The type of the operating system. Nova compares it with ``windows`` exactly, in lower case."""
        return self.properties.get(OS_TYPE)

    @property
    def resembles_windows(self) -> bool:
        """Whether a property or the name suggests Windows."""
        distribution = self.properties.get("os_distro", "")
        return (self.os_type or "").lower() == WINDOWS or any(
            _RESEMBLES_WINDOWS.search(text) for text in (distribution, self.name)
        )

    @property
    def architecture(self) -> str | None:
        """The processor architecture, by the name that the kernel uses; None if the image does not have it."""
        name = self.properties.get("hw_architecture") or self.properties.get("architecture")
        return _ARCHITECTURES.get(name.lower(), name.lower()) if name else None

    @property
    def is_bootable(self) -> bool:
        """Whether it is the disk of an instance, and not only a kernel or an initramfs."""
        return self.properties.get("disk_format") not in ("aki", "ari")

    @property
    def is_snapshot(self) -> bool:
        """Whether Nova made it from an instance."""
        return self.properties.get("image_type") == "snapshot"

    def is_true(self, name: str) -> bool | None:
        """The value of a boolean property, by oslo.utils' rules; None if the image does not have it."""
        value = self.properties.get(name)
        return None if value is None else value.strip().lower() in _TRUE


@dataclass(frozen=True, kw_only=True)
class FlavorNeeds:
    """The properties of a flavor that concern its images.

    :ivar models: the models of its GPUs.
    :ivar vendors: the PCI vendor ids of the models.
    :ivar images: names, patterns or ids of its images; empty if the spec names none.
    :ivar windows: whether the spec declares that its instances run Windows.
    :ivar disk: the root disk in GiB; 0 for the size of the image.
    :ivar ram: the memory in MiB; None if it is derived from hosts.
    :ivar hidden_from: models whose older Windows drivers refuse to run if they see a hypervisor.
    :ivar architectures: the architectures of the hosts with these models; empty if unknown.
    :ivar first_branches: the first branch of NVIDIA's driver by card, as far as known.
    :ivar last_branches: the last branch of NVIDIA's driver by card, for cards that newer drivers ignore.
    """

    name: str
    models: tuple[str, ...]
    vendors: frozenset[str]
    images: tuple[str, ...] = ()
    windows: bool = False
    disk: int
    ram: int | None = None
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    hidden_from: tuple[str, ...] = ()
    architectures: frozenset[str] = frozenset()
    first_branches: Mapping[str, int] = field(default_factory=dict)
    last_branches: Mapping[str, int] = field(default_factory=dict)

    @property
    def hides_hypervisor(self) -> bool:
        """Whether the flavor hides the hypervisor."""
        return any(
            self.extra_specs.get(key, "").strip().lower() in _TRUE
            for key in ("hw:hide_hypervisor_id", "hide_hypervisor_id")
        )


@dataclass(frozen=True, kw_only=True)
class Pair:
    """An image, and the flavors whose instances may use it."""

    image: Image
    flavors: tuple[FlavorNeeds, ...]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A problem of an image for a flavor.

    :ivar severity: replaces that of the definition.
    :ivar values: the values of the message, except the image and the flavors.
    """

    code: Code
    severity: Severity | None = None
    values: Mapping[str, str] = field(default_factory=dict)
