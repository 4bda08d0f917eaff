#!/bin/sh
# What gpustack's prepare.yml does to the lab's host, as a plain script over SSH that looks before it writes.
# Its arguments are the words of an ssh command that reaches the host as root.
set -eu
ssh=$*
changed=no

run() { # a command of the host
    # shellcheck disable=SC2086  # a list of words
    $ssh "$1"
}

lines() { # FILE LINE…: each that is missing is added
    file=$1
    shift
    for line in "$@"; do
        if ! run "grep -qxF '$line' $file 2>/dev/null"; then
            run "echo '$line' >>$file"
            changed=yes
        fi
    done
}

run "lspci -nn" >/dev/null
lines /etc/modprobe.d/vfio.conf "options vfio-pci ids=1234:1111,8086:2668" "softdep bochs pre: vfio-pci" \
    "softdep snd_hda_intel pre: vfio-pci"
lines /etc/initramfs-tools/modules vfio_pci
if ! run "grep -q intel_iommu=on /etc/default/grub"; then
    run "sed -i 's/^GRUB_CMDLINE_LINUX=\"/&intel_iommu=on iommu=pt /' /etc/default/grub"
    changed=yes
fi
if [ $changed = yes ]; then
    run "update-initramfs -u -k all"
    run "update-grub"
    before=$(run "cat /proc/sys/kernel/random/boot_id")
    run "systemctl reboot" || true
    until now=$(run "cat /proc/sys/kernel/random/boot_id") && [ "$now" != "$before" ]; do
        sleep 1
    done
fi
[ "$(run "lspci -nnk -d 1234:1111; lspci -nnk -d 8086:2668" | grep -c 'in use: vfio-pci')" = 4 ]
run "grep -qw intel_iommu=on /proc/cmdline"
