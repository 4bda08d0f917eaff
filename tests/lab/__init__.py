"""The kernel lab: a compute host with a real kernel, GRUB, initramfs, IOMMU and two 'GPUs', inside QEMU."""
