"""The needs of a flavor: what Nova requests from Placement and checks in its filters. Pure.

The amounts are those of ``ResourceRequest`` (nova/scheduler/utils.py) for an instance with a local root disk.
"""

import re
from collections.abc import Mapping

from gpustack.nova_options.scheduler import Scheduler
from gpustack.offer.flavor.flavors import WantedFlavor
from gpustack.operate.capacity.aggregates import FILTER
from gpustack.operate.capacity.model import Demand
from gpustack.spec.extra_specs import AFFINITY, CPU_POLICY, MAXPHYSADDR, NUMA_NODES, OLD_HIDE, has_numa_nodes
from gpustack.spec.model import Spec

_AGGREGATE = "aggregate_instance_extra_specs:"
_EMULATOR = "hw:emulator_threads_policy"
_PASSTHROUGH = "COMPUTE_ADDRESS_SPACE_PASSTHROUGH"
_UNMODELLED = re.compile(
    r"(resources|trait)[^:]+:|capabilities:"
    r"|hw:(mem_page_size|cpu_thread_policy|cpu_dedicated_mask|pmem|mem_encryption|locked_memory|numa_cpus|numa_mem"
    r"|tpm_version)|os:secure_boot|[^:]+\Z"
)
"""Extra specs that restrict hosts in ways that are not counted here. Names without namespace match aggregates."""


def demand_of(spec: Spec, flavor: WantedFlavor, scheduler: Scheduler | None = None) -> Demand:
    """The needs of one instance of a flavor.

    :param scheduler: the options of nova-scheduler, if they are known.
    """
    specs = flavor.extra_specs
    policies = [spec.models[model].numa_policy for alias in flavor.gpus for model in spec.models_of(alias)]
    of_alias = "required" if "required" in policies else next(filter(None, policies), None)
    traits = {key.removeprefix("trait:"): value for key, value in specs.items() if key.startswith("trait:")}
    if specs.get(MAXPHYSADDR) == "passthrough":
        traits[_PASSTHROUGH] = "required"
    dedicated = specs.get(CPU_POLICY) == "dedicated"
    unmodelled = {key for key in specs if key != OLD_HIDE and _UNMODELLED.match(key)}
    if specs.get(CPU_POLICY) == "mixed":
        unmodelled.add(f"{CPU_POLICY}=mixed")
    return Demand(
        flavor=flavor.name,
        gpus=flavor.gpus,
        amounts=_amounts(flavor, dedicated=dedicated),
        vcpus=flavor.sizes.vcpus,
        ram=flavor.sizes.ram,
        disk=flavor.sizes.disk + flavor.sizes.ephemeral,
        required=frozenset(name for name, value in traits.items() if value == "required"),
        forbidden=frozenset(name for name, value in traits.items() if value == "forbidden"),
        nodes=_nodes(specs),
        policy=specs.get(AFFINITY) or of_alias or "legacy",
        dedicated=dedicated,
        aggregate=_aggregate(specs, every=bool(scheduler and scheduler.enables(FILTER))),
        unmodelled=tuple(sorted(unmodelled)),
    )


def _aggregate(specs: Mapping[str, str], *, every: bool) -> dict[str, str]:
    """The metadata that Nova's filter requires.

    :param every: whether the filter is enabled: it also requires the keys without namespace.
    """
    return {
        name.removeprefix(_AGGREGATE): value
        for name, value in specs.items()
        if name.startswith(_AGGREGATE) or (every and ":" not in name)
    }


def _nodes(specs: Mapping[str, str]) -> int | None:
    """The number of NUMA nodes of the instance; Nova refuses a value that is no number."""
    if not has_numa_nodes(specs):
        return None
    number = specs.get(NUMA_NODES, "")
    return int(number) if number.isdecimal() else 1


def _amounts(flavor: WantedFlavor, *, dedicated: bool) -> dict[str, int]:
    sizes, specs = flavor.sizes, flavor.extra_specs
    amounts = {"PCPU" if dedicated else "VCPU": sizes.vcpus}
    if dedicated and specs.get(_EMULATOR) == "isolate":
        amounts["PCPU"] += 1
    amounts |= {"MEMORY_MB": sizes.ram, "DISK_GB": sizes.disk + sizes.ephemeral + -(-sizes.swap // 1024)}
    for key, value in specs.items():
        if key.startswith("resources:") and value.isdecimal():
            amounts[key.removeprefix("resources:")] = int(value)
    return {name: amount for name, amount in amounts.items() if amount}
