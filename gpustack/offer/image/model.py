"""The requirements of flavors on images."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpustack.base.findings import Code, Severity
from gpustack.cloud.image import TRUE, Image

MACHINE_TYPE, FIRMWARE = "hw_machine_type", "hw_firmware_type"
HIDE, SECURE_BOOT = "img_hide_hypervisor_id", "os_secure_boot"
DRIVER, SIGNED = "gpustack_driver", "gpustack_modules_signed"
"""Properties by which whoever builds an image declares the NVIDIA driver that it contains, and signed modules."""


@dataclass(frozen=True, kw_only=True)
class FlavorNeeds:
    """The properties of a flavor that concern its images.

    :ivar models: the models of its GPUs.
    :ivar vendors: the PCI vendor ids of the models.
    :ivar images: names, patterns or ids of its images; empty if the spec names none.
    :ivar windows: whether the spec declares that its instances run Windows; None if it declares nothing.
    :ivar disk: the root disk in GiB; 0 for the size of the image.
    :ivar ram: the memory in MiB; None if it is derived from hosts.
    :ivar hidden_from: models whose older Windows drivers refuse to run if they see a hypervisor.
    :ivar architectures: the architectures of the hosts with these models; empty if unknown.
    :ivar first_branches: the first branch of NVIDIA's driver by card, as far as known.
    :ivar last_branches: the last branch of NVIDIA's driver by card, for cards that newer drivers ignore.
    :ivar vgpus: the models whose instances get vGPUs of NVIDIA, which only the licensed guest driver serves.
    :ivar host_drivers: the releases of NVIDIA's driver on the hosts.
    """

    name: str
    models: tuple[str, ...]
    vendors: frozenset[str]
    images: tuple[str, ...] = ()
    windows: bool | None = None
    disk: int
    ram: int | None = None
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    hidden_from: tuple[str, ...] = ()
    architectures: frozenset[str] = frozenset()
    first_branches: Mapping[str, int] = field(default_factory=dict)
    last_branches: Mapping[str, int] = field(default_factory=dict)
    vgpus: tuple[str, ...] = ()
    host_drivers: tuple[str, ...] = ()

    @property
    def hides_hypervisor(self) -> bool:
        """Whether the flavor hides the hypervisor."""
        return any(
            self.extra_specs.get(key, "").strip().lower() in TRUE
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
