"""Which flavors are counted: those of the cloud, which Nova boots. Pure.

A flavor of the spec that the cloud lacks is counted as the spec wants it, and marked.
"""

from collections.abc import Iterator, Mapping, Sequence

from gpustack.base.findings import Code, Finding, finding
from gpustack.cloud.flavors import Flavor
from gpustack.nova_options.scheduler import Scheduler
from gpustack.offer.flavor.flavors import WantedFlavor
from gpustack.operate.capacity.demand import demand_of
from gpustack.operate.capacity.model import Demand
from gpustack.spec.extra_specs import ALIAS, NAMESPACE, parse_alias
from gpustack.spec.model import Spec


def demands(
    spec: Spec,
    wanted: Sequence[WantedFlavor],
    present: Mapping[str, Flavor] | None,
    scheduler: Scheduler | None = None,
) -> tuple[list[Demand], list[Finding]]:
    """The needs of flavors of a spec, and the differences between the spec and the cloud.

    :param present: the flavors of the cloud by name; None if they were not read.
    """
    found: list[Demand] = []
    findings: list[Finding] = []
    for flavor in wanted:
        current = (present or {}).get(flavor.name)
        if current is not None:
            found.append(demand_of_present(spec, current, scheduler))
            if differences := list(_differences(flavor, current)):
                findings.append(
                    finding(Code.COUNTED_FLAVOR_DIFFERS, place=flavor.name, differences="; ".join(differences))
                )
            continue
        missing = present is not None
        if missing:
            findings.append(finding(Code.COUNTED_FLAVOR_MISSING, place=flavor.name))
        specs, gpus = flavor.extra_specs, flavor.gpus
        found.append(demand_of(spec, flavor.name, flavor.sizes, specs, gpus, scheduler, in_cloud=not missing))
    return found, findings


def demand_of_present(
    spec: Spec, flavor: Flavor, scheduler: Scheduler | None = None, image: Mapping[str, str] | None = None
) -> Demand:
    """The needs of a flavor of the cloud.

    :param image: the properties of an image.
    """
    gpus = parse_alias(flavor.extra_specs.get(ALIAS, ""))
    return demand_of(spec, flavor.name, flavor.sizes, flavor.extra_specs, gpus, scheduler, image)


def _differences(flavor: WantedFlavor, current: Flavor) -> Iterator[str]:
    """Sizes and extra specs of the cloud that the spec wants otherwise."""
    specs = {name: value for name, value in current.extra_specs.items() if not name.startswith(NAMESPACE)}
    pairs = (
        (current.sizes.to_dict(), flavor.sizes.to_dict()),
        (specs, dict(flavor.extra_specs)),
    )
    for present, wanted in pairs:
        for name in sorted(present.keys() | wanted.keys()):
            of_cloud, of_spec = present.get(name, "not set"), wanted.get(name, "not set")
            if of_cloud != of_spec:
                yield f"{name} is {of_cloud}, the spec has {of_spec}"
