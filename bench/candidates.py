"""Query a real Placement for the candidates of flavors with several GPUs, with and without the options of gpustack.

    .venv/bin/python bench/candidates.py [RELEASE]

One host with eight free GPUs, which a real nova-compute reports. Limits: for five GPUs, the options make a query at
least three times as fast; for eight, the third option makes it at least twice as fast as the first two alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import limits
import openstack

from gpustack.configure.packing import CANDIDATES, Advised
from gpustack_demo.embedded.hosts import EmbeddedHost, gpus
from gpustack_demo.embedded.nova import EmbeddedNova

CONFIG = """\
[pci]
alias = {"name": "gpu", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI"}
device_spec = {"vendor_id": "10de", "product_id": "11b4"}
report_in_placement = true
[filter_scheduler]
pci_in_placement = true
"""


def query(cloud: openstack.connection.Connection, count: int) -> tuple[int, float]:
    """The number of candidates for a number of GPUs, and the seconds of the query that nova-scheduler makes."""
    groups = "&".join(f"resources{n}=CUSTOM_PCI_10DE_11B4:1" for n in range(count))
    began = time.perf_counter()
    url = f"/allocation_candidates?limit=1000&resources=VCPU:1&group_policy=none&{groups}"
    answer = cloud.placement.get(url, microversion="1.36").json()
    return len(answer["allocation_requests"]), time.perf_counter() - began


def main() -> None:
    """Measure, print, and check the limits."""
    release = sys.argv[1] if len(sys.argv) > 1 else "2025.2"
    host = EmbeddedHost(name="gpu1", pci=gpus(8))
    with EmbeddedNova(release, hosts=[host], config=[CONFIG]) as nova, nova.connection() as cloud:

        def measured(count: int, options: Sequence[Advised]) -> float:
            nova.control.configure_placement({advice.option.path: None for advice in CANDIDATES})
            nova.control.configure_placement({advice.option.path: advice.value for advice in options})
            number, took = query(cloud, count)
            print(f"{count} GPUs, {len(options)} options: {number} candidates in {took:.2f} s")
            assert number == 1000
            return took

        without, limited = measured(5, ()), measured(5, CANDIDATES)
        two, three = measured(8, CANDIDATES[:2]), measured(8, CANDIDATES)
    print(f"5 GPUs: {without / limited:.1f} times as fast with the options; 8: {two / three:.1f} with the third")
    limits.end(
        limits.check("candidates.with_three_options", limited / without),
        limits.check("candidates.third_option", three / two),
    )


if __name__ == "__main__":
    main()
