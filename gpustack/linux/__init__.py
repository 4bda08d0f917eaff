"""Files and command lines of Linux hosts: GRUB, shell fragments, modprobe.d, initramfs images, kernel arguments."""
