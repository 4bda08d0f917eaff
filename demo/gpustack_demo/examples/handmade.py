"""An example host that was set up for passthrough manually, from guides of several years."""

from __future__ import annotations

from gpustack_demo.examples.hosts import talk_host
from gpustack_demo.examples.machine import Machine

_GRUB = """\
GRUB_DEFAULT=0
GRUB_TIMEOUT=5
GRUB_DISTRIBUTOR=Debian
GRUB_CMDLINE_LINUX_DEFAULT='quiet splash intel_iommu=on vfio_iommu_type1.allow_unsafe_interrupts=1 pci-stub.ids=10de:11b4,10de:0e0a'
GRUB_CMDLINE_LINUX="crashkernel=512M-:192M dyndbg=\\"file drivers/pci/* +p\\" resume=UUID=1=2"
"""  # noqa: E501
_MODULES = """\
# /etc/modules: kernel modules to load at boot time.
pci_stub
vfio
vfio_iommu_type1
vfio_pci
kvm
kvm_intel
"""
_INITRAMFS = """\
# List of modules that you want to include in your initramfs.
pci_stub ids=10de:11b4,10de:0e0a
"""
_BLACKLIST = """\
# This file lists those modules which we don't want to be loaded.
blacklist pcspkr
blacklist nvidia
blacklist nvidia-uvm
blacklist nouveau
"""
_VFIO = """\
# second guide
options vfio-pci ids=10de:11b4 disable_vga=1
softdep nouveau pre: vfio-pci
options kvm ignore_msrs=1
"""
_RC_LOCAL = """\
#!/bin/sh -e
echo 10de 11b4 > /sys/bus/pci/drivers/pci-stub/new_id
echo 11de 0e0a > /sys/bus/pci/drivers/pci-stub/new_id
if [ -e /sys/bus/pci/devices/0000:88:00.0/driver ]; then
\techo 0000:88:00.0 > /sys/bus/pci/devices/0000:88:00.0/driver/unbind
fi
echo 0000:88:00.0 > /sys/bus/pci/drivers/pci-stub/bind
sysctl -q vm.swappiness=10
exit 0
"""
_UDEV = """\
# keep the second card's audio off the host
ACTION=="add", KERNEL=="0000:88:00.1", SUBSYSTEM=="pci", ATTR{driver_override}="vfio-pci"
ACTION=="add", KERNEL=="0000:88:00.1", SUBSYSTEM=="pci", RUN+="/bin/sh -c 'echo 0000:88:00.1 > /sys/bus/pci/drivers/pci-stub/bind'"
"""  # noqa: E501


def hand_made_host(name: str = "gpu05") -> Machine:
    """The talk's host after a reader followed the talk and then other guides: pci-stub has the cards.

    The guides contradict one another and current practice.
    """
    machine = talk_host(name)
    return machine.model_copy(
        update={
            "files": {
                **machine.files,
                "/etc/default/grub": _GRUB,
                "/etc/modules": _MODULES,
                "/etc/initramfs-tools/modules": _INITRAMFS,
                "/etc/modprobe.d/blacklist.conf": _BLACKLIST,
                "/etc/modprobe.d/vfio.conf": _VFIO,
                "/etc/rc.local": _RC_LOCAL,
                "/etc/udev/rules.d/99-gpu.rules": _UDEV,
                "/etc/driverctl.d/0000:84:00.1": "vfio-pci\n",
            }
        }
    )
