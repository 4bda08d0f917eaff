"""The kernel modules of the example hosts, with the functions that they match, from ``modinfo`` of Debian's kernels."""

# ruff: noqa: E501  (a table: one module a line)

from __future__ import annotations

from collections.abc import Mapping

from gpustack_demo.examples.machine import InstalledKernel, Module

_NVIDIA = "pci:v000010DEd*sv*sd*"
_AMD = "pci:v00001002d*sv*sd*"
_ANY = "pci:v*d*sv*sd*"


def _function(vendor: str, product: str) -> str:
    return f"pci:v{vendor.upper():0>8}d{product.upper():0>8}sv*sd*bc*sc*i*"


_MODULES = (
    # In every kernel, and for storage and consoles.
    Module(name="pcieport", path="", drivers={"pcieport": (f"{_ANY}bc06sc04i*",)}, builtin=True),
    Module(name="ahci", path="drivers/ata", drivers={"ahci": (f"{_ANY}bc01sc06i01*",)}, early=True),
    Module(name="nvme", path="drivers/nvme/host", drivers={"nvme": (f"{_ANY}bc01sc08i02*",)}, early=True),
    Module(name="ext4", path="fs/ext4", early=True),
    Module(name="xhci_pci", path="drivers/usb/host", drivers={"xhci_hcd": (f"{_ANY}bc0Csc03i30*",)}, early=True),
    Module(name="ast", path="drivers/gpu/drm/ast", drivers={"ast": ("pci:v00001A03d00002000sv*sd*bc03sc*i*",)}),
    Module(name="igb", path="drivers/net/ethernet/intel/igb", drivers={"igb": (_function("8086", "1521"), _function("8086", "1533"))}, early=True),
    Module(name="mlx5_core", path="drivers/net/ethernet/mellanox/mlx5/core", drivers={"mlx5_core": (_function("15b3", "101d"), _function("15b3", "1021"))}, early=True),
    Module(name="i2c_i801", path="drivers/i2c/busses", drivers={"i801_smbus": (_function("8086", "8d22"),)}),
    # Sound: also binds the audio function of graphics cards.
    Module(name="snd_hda_intel", path="sound/pci/hda", drivers={"snd_hda_intel": (f"{_NVIDIA}bc04sc03i00*", f"{_AMD}bc04sc03i00*", _function("8086", "8d20"))}, needs=("snd_hda_codec",)),
    Module(name="snd_hda_codec", path="sound/pci/hda"),
    # Graphics.
    Module(name="drm", path="drivers/gpu/drm"),
    Module(name="nouveau", path="drivers/gpu/drm/nouveau", drivers={"nouveau": (f"{_NVIDIA}bc03sc*i*",)}, needs=("drm",)),
    Module(name="nvidiafb", path="drivers/video/fbdev/nvidia", drivers={"nvidiafb": (f"{_NVIDIA}bc03sc*i*",)}),
    Module(name="nvidia", path="../updates/dkms", drivers={"nvidia": (f"{_NVIDIA}bc03sc00i00*", f"{_NVIDIA}bc03sc02i00*"), "nvidia-nvswitch": (f"{_NVIDIA}bc06sc80i00*",)}, needs=("drm",)),
    Module(name="nvidia_modeset", path="../updates/dkms", needs=("nvidia",)),
    Module(name="nvidia_drm", path="../updates/dkms", needs=("nvidia_modeset", "nvidia", "drm")),
    Module(name="nvidia_uvm", path="../updates/dkms", needs=("nvidia",)),
    Module(name="amdgpu", path="drivers/gpu/drm/amd/amdgpu", drivers={"amdgpu": (_function("1002", "740f"), _function("1002", "74a1"))}, needs=("drm",)),
    Module(name="radeon", path="drivers/gpu/drm/radeon", drivers={"radeon": (_function("1002", "6779"),)}, needs=("drm",)),
    # Passthrough. vfio-pci and pci-stub bind nothing without an ids parameter or driver_override.
    Module(name="irqbypass", path="virt/lib"),
    Module(name="vfio", path="drivers/vfio"),
    Module(name="vfio_virqfd", path="drivers/vfio", needs=("vfio",)),
    Module(name="vfio_iommu_type1", path="drivers/vfio", needs=("vfio",)),
    Module(name="vfio_pci_core", path="drivers/vfio/pci", needs=("vfio", "irqbypass")),
    Module(name="vfio_pci", path="drivers/vfio/pci", drivers={"vfio-pci": ()}, needs=("vfio_pci_core", "vfio")),
    Module(name="pci_stub", path="drivers/pci", drivers={"pci-stub": ()}),
    Module(name="kvm", path="arch/x86/kvm", needs=("irqbypass",)),
    Module(name="kvm_intel", path="arch/x86/kvm", needs=("kvm",)),
    Module(name="kvm_amd", path="arch/x86/kvm", needs=("kvm",)),
)  # fmt: skip

_VENDOR_DRIVER = {"nvidia", "nvidia_modeset", "nvidia_drm", "nvidia_uvm"}


def kernel(
    release: str,
    *,
    config: Mapping[str, str],
    early: frozenset[str] = frozenset(),
    builtin: frozenset[str] = frozenset(),
    nvidia: bool = False,
    virqfd: bool = False,
) -> InstalledKernel:
    """A kernel with the modules of the example hosts.

    :param early: additional modules in this distribution's initramfs (``plymouth`` adds the graphics drivers).
    :param builtin: modules that are built into this kernel's image.
    :param nvidia: whether the vendor's driver is installed.
    :param virqfd: whether the kernel is older than 6.2, in which ``vfio_virqfd`` became a part of ``vfio``.
    """
    modules = []
    for module in _MODULES:
        if (module.name in _VENDOR_DRIVER and not nvidia) or (module.name == "vfio_virqfd" and not virqfd):
            continue
        needs = module.needs
        if virqfd and module.name == "vfio_pci_core":
            needs = (*needs, "vfio_virqfd")
        modules.append(
            module.model_copy(
                update={
                    "needs": tuple(n for n in needs if n not in builtin),
                    "early": module.early or module.name in early,
                    "builtin": module.builtin or module.name in builtin,
                }
            )
        )
    return InstalledKernel(release=release, config=config, modules=tuple(modules))
