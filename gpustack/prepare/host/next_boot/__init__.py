"""The next boot: kernel arguments, boot entries, initramfs images, a trial boot, and why a reboot is required."""
