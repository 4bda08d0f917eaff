"""Cards with mediated devices of Nova's libvirt fixture, and the configuration that offers two types on them."""

from __future__ import annotations

from gpustack_demo.embedded.hosts import EmbeddedDevice, MdevType

FIRST, SECOND = "0000:84:00.0", "0000:85:00.0"
TYPES = (
    MdevType(id="nvidia-711", name="NVIDIA A16-8Q", instances=2),
    MdevType(id="nvidia-710", name="NVIDIA A16-4Q", instances=4),
)
CARDS = tuple(
    EmbeddedDevice(address=address, vendor="10de", product="25b6", driver="nvidia", class_="030200", mdev_types=TYPES)
    for address in (FIRST, SECOND)
)
DEVICES = f"""
[compute]
resource_provider_association_refresh = 1
[devices]
enabled_mdev_types = nvidia-711, nvidia-710
[mdev_nvidia-711]
device_addresses = {FIRST}
[mdev_nvidia-710]
device_addresses = {SECOND}
mdev_class = CUSTOM_A16_4Q
"""
"""nova-compute reads its providers again after a second, and not only after five minutes."""
