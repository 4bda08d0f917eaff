"""The kernel modules whose presence in a kernel decides what a plan may name.

Names with ``vfio_pci`` in them (variant drivers such as nvgrace_gpu_vfio_pci or mlx5_vfio_pci) and the candidates of
the GPUs' own functions come on top.
"""

PASSTHROUGH_MODULES = ("vfio", "vfio_pci", "vfio_pci_core", "vfio_iommu_type1", "vfio_virqfd", "pci_stub")
KVM_MODULES = ("kvm", "kvm_intel", "kvm_amd")
GPU_MODULES = (
    "nouveau",
    "nvidia",
    "nvidia_drm",
    "nvidia_modeset",
    "nvidia_peermem",
    "nvidia_uvm",
    "nvidiafb",
    "nova_core",
    "nova_drm",
    "amdgpu",
    "radeon",
    "i915",
    "xe",
    "snd_hda_intel",
    "xhci_pci",
)
NAMED_MODULES = PASSTHROUGH_MODULES + KVM_MODULES + GPU_MODULES
