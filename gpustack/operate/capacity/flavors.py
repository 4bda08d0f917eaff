"""Which flavors are counted: those of the cloud, which Nova boots. Pure.

A flavor of the spec that the cloud lacks is counted as the spec wants it, and marked.

The needs of a flavor: what Nova requests from Placement and checks in its filters. Pure.

The requests are those of ``ResourceRequest.from_request_spec`` (nova/scheduler/utils.py) for an instance with a local
root disk.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from gpustack.base.by_key import by_key
from gpustack.base.files import data_table
from gpustack.base.findings import Code, Finding, finding
from gpustack.cloud.flavors import Flavor, Sizes
from gpustack.cloud.servers import requested_classes
from gpustack.fleet.cards import kinds_of, vgpu_requests
from gpustack.nova_options.pci_values import resource_class
from gpustack.nova_options.releases import releases
from gpustack.nova_options.scheduler import Scheduler, by_devices
from gpustack.offer.flavor.flavors import WantedFlavor
from gpustack.operate.capacity import topology as numa
from gpustack.operate.capacity.aggregates import EXTRA_SPECS, IMAGES
from gpustack.operate.capacity.model import Demand, PlacementRequest
from gpustack.spec import extra_specs
from gpustack.spec.extra_specs import ALIAS, NAMESPACE, OLD_HIDE, PMEM, TRAIT
from gpustack.spec.model import Spec


def demands(
    spec: Spec, wanted: Sequence[WantedFlavor], present: Mapping[str, Flavor] | None, scheduler: Scheduler | None = None
) -> tuple[list[Demand], list[Finding]]:
    """The needs of flavors of a spec, and the differences between the spec and the cloud.

    :param present: the flavors of the cloud by name; None if they were not read.
    """
    found: list[Demand] = []
    findings: list[Finding] = []
    for flavor in wanted:
        if (current := (present or {}).get(flavor.name)) is not None:
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
    gpus = extra_specs.parse_alias(flavor.extra_specs.get(ALIAS, ""))
    return demand_of(spec, flavor.name, flavor.sizes, flavor.extra_specs, gpus, scheduler, image)


def _differences(flavor: WantedFlavor, current: Flavor) -> Iterator[str]:
    """Sizes and extra specs of the cloud that the spec wants otherwise."""
    specs = {name: value for name, value in current.extra_specs.items() if not name.startswith(NAMESPACE)}
    pairs = ((current.sizes.to_dict(), flavor.sizes.to_dict()), (specs, dict(flavor.extra_specs)))
    for present, wanted in pairs:
        for name in sorted(present.keys() | wanted.keys()):
            of_cloud, of_spec = present.get(name, "not set"), wanted.get(name, "not set")
            if of_cloud != of_spec:
                yield f"{name} is {of_cloud}, the spec has {of_spec}"


_AGGREGATE = "aggregate_instance_extra_specs:"
_RESOURCE = re.compile(r"resources([a-zA-Z0-9_-]{1,64})?:(.*)")
_UNMODELLED = re.compile(
    r"(resources|trait)[^:]+:|capabilities:|accel:|hw:(mem_encryption|maxphysaddr_bits|virtio_packed_ring"
    r"|ephemeral_encryption|sound_model=virtio|tpm_secret_security)|[^:]+="
)
"""Extra specs that restrict hosts in ways that are not counted here. Names without namespace match aggregates."""
_OF_IMAGE = re.compile(
    r"(?!.*=(x86_64|amd64|kvm|qemu|hvm|false)$)((hw_)?(architecture|vm_mode)|img_hv_|hypervisor_(type|version)"
    r"|hw_(mem_encryption|maxphysaddr_bits|virtio_packed_ring|ephemeral_encryption|firmware_stateless"
    r"|sound_model=virtio))",
    re.IGNORECASE,
)
"""Properties of images that do so, without the values that every host with GPUs has: ImagePropertiesFilter compares."""


def demand_of(
    spec: Spec,
    name: str,
    sizes: Sizes,
    specs: Mapping[str, str],
    gpus: Mapping[str, int],
    scheduler: Scheduler | None = None,
    image: Mapping[str, str] | None = None,
    *,
    in_cloud: bool = True,
) -> Demand:
    """The needs of one instance of a flavor.

    :param name: of the flavor.
    :param specs: its extra specs.
    :param gpus: the number of its GPUs by alias.
    :param scheduler: the options of nova-scheduler, if they are known.
    :param image: the properties of the image.
    :param in_cloud: whether the cloud has the flavor.
    """
    vgpus, split, specs = _vgpus(spec, specs)
    gpus = {**gpus, **vgpus}
    request = numa.BootRequest(vcpus=sizes.vcpus, ram=sizes.ram, specs={**_secrets(spec), **specs}, image=image or {})
    models = [model for alias in gpus for model in spec.models_of(alias)]
    topology: numa.Topology | None = None
    requests, affinity, refused = [PlacementRequest(amounts={})], "", ""
    try:
        processors = numa.processors_of(request)
        topology, affinity = numa.topology_of(request, processors), request.either("pci_numa_affinity_policy")
        requests = requests_of(request, sizes, processors)
    except numa.FlavorRefusedError as error:
        refused = str(error)
    known = scheduler.aliases if scheduler else None
    if known is not None and (missing := sorted(gpus.keys() - vgpus.keys() - known)):
        refused = refused or f"the alias {', '.join(missing)} is not in nova.conf"
    kinds = kinds_of(spec, set(models)) if by_devices(scheduler, spec) else ()
    classes = sorted({kind.resource_class or "CUSTOM_PCI_{}_{}".format(*kind.ids).upper() for kind in kinds})
    # Without Placement, the first alias can take GPUs that only the second one needs, or the card of its functions.
    several = len(set(models)) < len(models) or len({spec.models[model].is_virtual for model in models}) > 1
    second = requests[1] if len(requests) > 1 and not (scheduler and scheduler.fallback is False) else None
    return Demand(
        flavor=name,
        gpus=gpus,
        **vars(requests[0]),
        fallback=second,
        vcpus=sizes.vcpus,
        ram=sizes.ram,
        disk=sizes.disk + sizes.ephemeral,
        topology=topology,
        policies={alias: affinity or _policy(spec, alias) for alias in gpus},
        aggregate=_aggregate(specs, every=bool(scheduler and scheduler.enables(EXTRA_SPECS))),
        unmodelled=(
            *sorted(k for k, v in specs.items() if k != OLD_HIDE and _UNMODELLED.match(f"{k}={v}")),
            *(f"the image's {k}" for k, v in request.image.items() if _OF_IMAGE.match(f"{k}={v}")),
            *([f"the order of {', '.join(gpus)}"] if several and not classes else []),
            *(f"{alias}:0" for alias, count in gpus.items() if not count),  # a free device must match it
            *([IMAGES] if image and scheduler and scheduler.enables(IMAGES) else []),
            *(scheduler.by_image if image and scheduler else ()),
        ),
        classes=tuple(classes),
        vgpus={name: name in split for name in vgpus},
        refused=refused,
        in_cloud=in_cloud,
        unknown=tuple(alias for alias in gpus if alias not in vgpus and not spec.models_of(alias)),
    )


def _policy(spec: Spec, alias: str) -> str:
    """The PCI NUMA affinity policy of an alias."""
    policies = [spec.models[model].numa_policy for model in spec.models_of(alias)]
    return "required" if "required" in policies else next(filter(None, policies), "legacy")


def _vgpus(spec: Spec, specs: Mapping[str, str]) -> tuple[dict[str, int], frozenset[str], dict[str, str]]:
    """The vGPUs that extra specs request, as :func:`vgpu_requests` names them, and the other extra specs.

    The second value has the names of those in numbered groups, each of which can have another provider.
    """
    known = by_key(vgpu_requests(spec).values())
    amounts = {name: amount for name, amount in requested_classes(specs).items() if name in known}
    required = extra_specs.required_traits(specs)
    own = {name: sorted({trait for of in known[name] for trait in of} & required) for name in amounts}
    names = {name: " ".join((name, *traits)) for name, traits in own.items()}
    groups = {key: match for key in specs if (match := _RESOURCE.fullmatch(key)) and match[2] in amounts}
    taken = {f"{TRAIT}{trait}" for traits in own.values() for trait in traits}
    taken |= {key for key, match in groups.items() if not match[1] or specs[key] == "1"}  # others are not modelled
    split = frozenset(names[match[2]] for match in groups.values() if match[1])
    rest = {key: value for key, value in specs.items() if key not in taken}
    return {names[name]: amount for name, amount in amounts.items()}, split, rest


def requests_of(request: numa.BootRequest, sizes: Sizes, processors: numa.Processors) -> list[PlacementRequest]:
    """Nova's requests to Placement; the second one, for hosts without ``PCPU``, does not translate processors.

    :raises numa.FlavorRefusedError: if the flavor and the image exclude each other.
    """
    if any(count is None for _, count in extra_specs.alias_parts(request.specs.get(ALIAS, "alias:1"))):
        raise numa.FlavorRefusedError(f"{ALIAS} is {request.specs[ALIAS]!r}, expected ALIAS:NUMBER[,ALIAS:NUMBER]")
    amounts = {"MEMORY_MB": sizes.ram, "DISK_GB": sizes.disk + sizes.ephemeral + -(-sizes.swap // 1024)}
    for label in filter(None, map(str.strip, request.specs.get(PMEM, "").split(","))):
        name = "CUSTOM_PMEM_NAMESPACE_" + re.sub(r"[^A-Za-z0-9_]", "_", label).upper()
        amounts[name] = amounts.get(name, 0) + 1
    explicit: dict[str, int] = {}
    classes: set[str] = set()
    for key, value in request.specs.items():
        match, amount = _RESOURCE.fullmatch(key), extra_specs.as_number(value)
        if match is None or amount is None or amount < 0 or resource_class(match[2]) != match[2]:
            continue  # as Nova does
        classes.add(match[2])
        explicit |= {} if match[1] else {match[2]: amount}
    amounts = {name: amount for name, amount in amounts.items() if name not in classes}
    named = extra_specs.required_traits(request.specs) | extra_specs.required_traits(request.image)
    required = named | _required(request)
    forbidden = extra_specs.forbidden_traits(request.specs)

    def made(cpus: Mapping[str, int], *, threads: str = "") -> PlacementRequest:
        needs = {**amounts, **cpus, **explicit}
        return PlacementRequest(
            amounts={name: amount for name, amount in needs.items() if amount},
            required=frozenset(required | ({numa.HYPERTHREADING} if threads == "require" else set())),
            forbidden=frozenset(forbidden | ({numa.HYPERTHREADING} if threads == "isolate" else set())),
        )

    plain = {} if classes & {"VCPU", "PCPU"} else {"VCPU": request.vcpus}
    if processors.requested not in ("dedicated", "mixed"):
        return [made(plain, threads=processors.threads)]
    pinned = len(processors.dedicated) + processors.isolated
    first = made({"PCPU": pinned, "VCPU": request.vcpus - len(processors.dedicated)}, threads=processors.threads)
    return [first, made(plain)] if processors.requested == "dedicated" else [first]


def _secrets(spec: Spec) -> dict[str, str]:
    """The default for the secret of a TPM: Nova 33 and later require a trait (``tpm_secret_security_filter``)."""
    name = spec.nova.release.lower() if spec.nova else ""
    known = any(later.major >= 33 and name in (later.name, later.number) for later in releases())
    return {"hw:tpm_secret_security": "user"} if known else {}


def _required(request: numa.BootRequest) -> set[str]:
    """The traits that extra specs or properties of the image imply."""
    traits = set()
    for spec, by_value in data_table("extra_spec_traits.toml").items():
        prefix, _, name = spec.partition(":")
        traits.add(by_value.get(numa.allowed(spec, request.either(name, prefix), by_value), ""))
    if request.either("tpm_version"):
        traits.add(f"COMPUTE_SECURITY_TPM_{'CRB' if request.either('tpm_model') == 'tpm-crb' else 'TIS'}")
        if secrets := request.specs.get("hw:tpm_secret_security"):
            traits.add(f"COMPUTE_SECURITY_TPM_SECRET_SECURITY_{secrets.upper()}")
    return traits - {""}


def _aggregate(specs: Mapping[str, str], *, every: bool) -> dict[str, str]:
    """The metadata that Nova's filter requires.

    :param every: whether the filter is enabled: it also requires the keys without namespace.
    """
    return {
        name.removeprefix(_AGGREGATE): value
        for name, value in specs.items()
        if name.startswith(_AGGREGATE) or (every and ":" not in name)
    }
