"""Kernel modules that the collector looks for in each kernel; a plan names only modules that exist.

In addition, the collector looks for modules with ``vfio_pci`` in the name (variant drivers such as nvgrace_gpu_vfio_pci
or mlx5_vfio_pci), and for the modules that match the GPUs' functions.
"""

PASSTHROUGH_MODULES = ("vfio", "vfio_pci", "vfio_pci_core", "vfio_iommu_type1", "vfio_virqfd", "pci_stub")
KVM_MODULES = ("kvm", "kvm_intel", "kvm_amd")
GPU_MODULES = (
    *("nouveau", "nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_peermem", "nvidia_uvm", "nvidiafb"),
    *("nova_core", "nova_drm", "amdgpu", "radeon", "i915", "xe", "snd_hda_intel", "xhci_pci"),
)
NAMED_MODULES = PASSTHROUGH_MODULES + KVM_MODULES + GPU_MODULES
