"""The desired flavors of a spec, for a release of Nova and, if known, for certain hosts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpustack.base.findings import Code, Finding, finding
from gpustack.cloud.flavors import Sizes
from gpustack.hosts.facts.model import Host
from gpustack.nova_options import releases
from gpustack.nova_options.options import Release
from gpustack.offer.flavor import vgpus
from gpustack.offer.flavor.fitting import fitting
from gpustack.offer.flavor.flavors import WantedFlavor
from gpustack.offer.flavor.shares import HostShare, host_shares, ram_for_each, vcpus_for_each
from gpustack.spec import extra_specs as keys
from gpustack.spec import markers
from gpustack.spec.attributes import card_of
from gpustack.spec.flavors import Flavor, named
from gpustack.spec.model import Spec
from gpustack.spec.requests import Entry, by_alias, entries, models_of
from gpustack.spec.verdict import doubts
from gpustack.spec.vgpu_use import UNKNOWN, Frameworks, frameworks, with_memory

_REFUSES_HYPERVISOR = "error-43"
_TPM, _TPM_MODEL = "2.0", "tpm-crb"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The flavors of a spec in its order, and all findings about them."""

    flavors: tuple[WantedFlavor, ...]
    findings: tuple[Finding, ...]


def wanted(spec: Spec, *, release: Release, hosts: Sequence[Host] = ()) -> Wanted:
    """Return the flavors of a spec.

    :param release: the release of Nova, which determines the extra specs.
    :param hosts: the facts of hosts, for ``auto`` and for findings about flavors that fit no host.
    """
    spec, known = with_memory(spec, hosts), frameworks(spec, hosts)
    shares = host_shares(spec, hosts)
    flavors: list[WantedFlavor] = []
    findings: list[Finding] = list(doubts(spec, hosts))
    for entry in entries(spec):
        problems = _release_problems(spec, entry, release)
        of_vgpus = list(vgpus.problems(spec, known, entry, release))
        sizes, missing = sizes_of(entry, shares)
        nodes, unknown = _nodes(entry, shares)
        findings += [*problems, *missing, *unknown, *of_vgpus]
        if sizes is None or unknown or of_vgpus:
            continue
        findings += fitting(
            entry,
            sizes,
            shares,
            nodes=nodes,
            policy=entry.flavor.numa.policy or _model_policy(spec, entry),
            networks=[
                name
                for name, network in spec.networks.items()
                if (network.numa_policy or entry.flavor.numa.policy) == "required"
            ],
            knows_maxphysaddr=keys.MAXPHYSADDR in releases.extra_specs(release),
        )
        flavors.append(_made(spec, entry, release, sizes, nodes, known))
    return Wanted(flavors=tuple(flavors), findings=tuple(findings))


def sizes_of(entry: Entry, shares: Sequence[HostShare]) -> tuple[Sizes | None, list[Finding]]:
    """Return the sizes; None and a finding if ``auto`` has no facts to use."""
    flavor, per_gpu = entry.flavor, entry.flavor.per_gpu
    usable = [share for share in shares if any(model in share.gpus for model in entry.models)]
    sizes: dict[str, int | None] = {}
    for size, auto in (("vcpus", vcpus_for_each), ("ram", ram_for_each), ("disk", None)):
        share = getattr(per_gpu, size)
        if share == "auto" and auto is not None:
            share = auto(usable, getattr(flavor.reserve, size))
        fixed = getattr(flavor, size)
        sizes[size] = fixed if fixed is not None else None if share is None else share * entry.count
    if missing := [size for size, value in sizes.items() if value is None]:
        models = " and ".join(entry.models)
        return None, [finding(Code.FLAVOR_SIZE_UNKNOWN, place=entry.name, what=" and ".join(missing), models=models)]
    known = {size: value for size, value in sizes.items() if value is not None}
    return Sizes(**known, ephemeral=flavor.ephemeral, swap=flavor.swap), []


def _nodes(entry: Entry, shares: Sequence[HostShare]) -> tuple[int | None, list[Finding]]:
    if (nodes := entry.flavor.numa.nodes) != "auto":
        return nodes, []
    needed = [share.nodes_for(entry.models) for share in shares if share.has(entry.models)]
    if not (numbers := [number for number in needed if number is not None]):
        models = " and ".join(entry.models)
        return None, [finding(Code.FLAVOR_SIZE_UNKNOWN, place=entry.name, what="numa.nodes", models=models)]
    return max(numbers), []


def _model_policy(spec: Spec, entry: Entry) -> str | None:
    policies = {spec.models[model].numa_policy for name in entry.models for model in spec.selected.get(name, (name,))}
    return "required" if "required" in policies else next(iter(policies - {None}), None)


def _made(
    spec: Spec, entry: Entry, release: Release, sizes: Sizes, nodes: int | None, known: Frameworks
) -> WantedFlavor:
    flavor = entry.flavor
    return WantedFlavor(
        name=entry.name,
        sizes=sizes,
        gpus=by_alias(spec, _of_aliases(spec, entry, known)),
        extra_specs=extra_specs_of(spec, entry, release, nodes, known),
        id=named(flavor.id, entry.count) if flavor.id else None,
        description=named(flavor.description or _parts(spec, entry), entry.count),
        access=None if flavor.access is None else tuple(dict.fromkeys(flavor.access)),
    )


def _parts(spec: Spec, entry: Entry) -> str:
    """The parts of shared cards that a flavor requests: ``2 x 1/4 A16``, ``A16-8Q``; empty for complete cards."""
    parts = []
    for name, count in entry.models.items():
        model = spec.models.get(name)
        card = card_of(model) if model else None
        of = card.name if card else name
        if model is not None and model.vgpu is not None:
            part = model.vgpu.type
        elif model is not None and model.vfs is not None:
            part = f"1/{model.vfs.count} {f'({of})' if '/' in of else of}"
        else:
            return ""
        parts.append(part if count == 1 else f"{count} x {part}")
    return ", ".join(parts)


def _of_aliases(spec: Spec, entry: Entry, known: Frameworks) -> dict[str, int]:
    """The number of GPUs by model that a flavor requests by alias."""
    return {name: count for name, count in entry.models.items() if not vgpus.is_mediated(spec, known, name)}


def extra_specs_of(
    spec: Spec, entry: Entry, release: Release, nodes: int | None = None, known: Frameworks = UNKNOWN
) -> dict[str, str]:
    """Return the extra specs of an entry.

    :param nodes: the number of NUMA nodes of the instance; None if it is not set or not known.
    :param known: how the hosts create vGPUs.
    """
    gpus = by_alias(spec, _of_aliases(spec, entry, known))
    return {
        **extra_specs(entry.flavor, gpus, release, nodes=nodes, hides=_hides(spec, entry.flavor)),
        **entry.flavor.extra_specs,
        **vgpus.extra_specs(spec, known, entry.models),
        **markers.extra_specs(spec, by_alias(spec, entry.models)),
        **(spec.tenancy.extra_specs if spec.tenancy else {}),
    }


def refusing_hypervisor(spec: Spec, flavor: Flavor) -> tuple[str, ...]:
    """The models of a flavor whose older Windows drivers refuse to run if they see a hypervisor."""
    cards = {model: card_of(spec.models[model]) for model in models_of(spec, flavor)}
    return tuple(model for model, card in cards.items() if card and _REFUSES_HYPERVISOR in card.quirks)


def _hides(spec: Spec, flavor: Flavor) -> bool:
    """Whether the hypervisor is hidden: as the spec has it, else for Windows with a model that needs it."""
    if "hide_hypervisor" in flavor.model_fields_set:
        return flavor.hide_hypervisor
    return flavor.is_windows and bool(refusing_hypervisor(spec, flavor))


def extra_specs(
    flavor: Flavor, gpus: Mapping[str, int], release: Release, *, nodes: int | None, hides: bool
) -> dict[str, str]:
    """Return the extra specs of the fields of a flavor, with the names that ``release`` supports.

    :param gpus: the number of GPUs by alias.
    :param nodes: the number of NUMA nodes of the instance.
    :param hides: whether the hypervisor is hidden.
    """
    specs = {
        keys.ALIAS: keys.alias_value(gpus),
        keys.AFFINITY: flavor.numa.policy,
        keys.NUMA_NODES: None if nodes is None else str(nodes),
        keys.CPU_POLICY: flavor.cpu_policy,
        keys.PAGE_SIZE: flavor.mem_page_size,
        keys.MAXPHYSADDR: flavor.maxphysaddr,
        keys.HIDE if keys.HIDE in releases.extra_specs(release) else keys.OLD_HIDE: "true" if hides else None,
        keys.SECURE_BOOT: "required" if flavor.secure_boot else None,
        keys.TPM_VERSION: _TPM if flavor.tpm else None,
        keys.TPM_MODEL: _TPM_MODEL if flavor.tpm else None,
    }
    return {key: value for key, value in specs.items() if value}


def _release_problems(spec: Spec, entry: Entry, release: Release) -> Iterator[Finding]:
    """Yield findings about extra specs that the release lacks, and findings that do not depend on hosts."""
    flavor, hides = entry.flavor, _hides(spec, entry.flavor)
    known = releases.extra_specs()
    for key, value in (
        (keys.AFFINITY, flavor.numa.policy),
        (keys.MAXPHYSADDR, flavor.maxphysaddr),
        (keys.OLD_HIDE, "true" if hides else None),
        (keys.SECURE_BOOT, "required" if flavor.secure_boot else None),
        (keys.TPM_VERSION, _TPM if flavor.tpm else None),
    ):
        if value is None:
            continue
        since = max(known[key].since, dict(known[key].values_since).get(value, 0))
        if release.major < since:
            first = releases.first_with(since)
            what = f"{key}={value}"
            yield finding(Code.EXTRA_SPEC_NOT_IN_RELEASE, place=entry.name, what=what, release=release, since=first)
    if hides and keys.HIDE not in releases.extra_specs(release):
        yield finding(Code.EXTRA_SPEC_WITHOUT_NAMESPACE, place=entry.name, release=release)
    if flavor.tpm:
        state = "requests a virtual TPM: its hosts need swtpm and [libvirt] swtpm_enabled = true, Nova a key manager"
        yield finding(Code.TPM_PREREQUISITES, place=entry.name, state=state)
    if flavor.is_windows:
        hide = ", img_hide_hypervisor_id=true" if refusing_hypervisor(spec, flavor) and not hides else ""
        yield finding(Code.WINDOWS_IMAGE_PROPERTIES, place=entry.name, hide=hide)
