"""The groups of nodes that a spec's flavors make: one for each flavor."""

import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from gpustack.base.findings import Code, Finding, Severity, finding
from gpustack.cloud.flavors import Sizes
from gpustack.cloud.servers import requested_classes
from gpustack.fleet.cards import vgpu_requests
from gpustack.hosts.facts.model import Host
from gpustack.offer.flavor.desired import sizes_of
from gpustack.offer.flavor.shares import HostShare, host_shares
from gpustack.pci.catalogue import requirement_of
from gpustack.spec.attributes import card_of
from gpustack.spec.model import Spec
from gpustack.spec.models import DEFAULT_CLASS, Model
from gpustack.spec.requests import Entry, entries

GPUTYPE = "gpustack/gputype"
"""The label with the model. NFD adds its own prefix to a label without one, so only a prefix gives one name."""
_LABEL = 63
_NAME = 40
"""Characters of a group's name: Cluster API adds the cluster's name and uses the result as a label's value."""
NVIDIA = "nvidia.com/gpu"
_OF_VENDOR = {"10de": NVIDIA, "1002": "amd.com/gpu"}
_OF_MODULE = {"i915": "gpu.intel.com/i915", "xe": "gpu.intel.com/xe"}
"""Intel's plug-in names the resource after the driver in the kernel."""


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """Nodes of one flavor.

    :ivar name: the flavor's name as a name in Kubernetes.
    :ivar count: the number of GPUs of a node.
    :ivar models: the models in a node; if they are alternatives, those that a node can have.
    :ivar alternatives: whether Nova chooses among models: by attribute, or because they share an alias.
    :ivar resource: the extended resource of the GPUs.
    :ivar sizes: the sizes of the flavor; None without the facts that ``auto`` needs.
    :ivar unsized: why the sizes are unknown.
    """

    flavor: str
    name: str
    count: int
    models: tuple[str, ...]
    alternatives: bool
    resource: str
    sizes: Sizes | None
    unsized: tuple[Finding, ...] = field(default=(), compare=False)

    @property
    def gputype(self) -> str | None:
        """The value of the label; None if only the node itself shows its model."""
        return None if self.alternatives else gputype(self.models)

    @property
    def kinds(self) -> tuple[tuple[str, ...], ...]:
        """The sets of models of the nodes that have a label of their own."""
        return tuple((model,) for model in self.models) if self.alternatives else (self.models,)

    @property
    def mixes(self) -> bool:
        """Whether Nova can give a node GPUs of several of the alternatives."""
        return self.alternatives and self.count > 1

    @property
    def labels(self) -> dict[str, str]:
        """The labels with which a node registers."""
        return {GPUTYPE: self.gputype} if self.gputype else {}

    @property
    def taints(self) -> list[dict[str, str]]:
        """The taints with which a node registers: only NVIDIA's operator tolerates the taint of its own resource."""
        own = {"key": self.resource, "value": "present", "effect": "NoSchedule"}
        return [own] if self.resource == NVIDIA else []


def tolerations(keys: Iterable[str]) -> list[dict[str, str]]:
    """Tolerations of taints with these keys."""
    return [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in dict.fromkeys(keys)]


@dataclass(frozen=True, kw_only=True)
class Groups:
    """The groups, and findings about flavors; flavors with an error, and those for Windows, have no group."""

    groups: tuple[NodeGroup, ...]
    findings: tuple[Finding, ...]


def node_groups(spec: Spec, *, flavors: Collection[str] = (), hosts: Sequence[Host] = ()) -> Groups:
    """The groups of a spec's flavors.

    :param flavors: the names of flavors; all when empty.
    :param hosts: the facts of hosts, for sizes ``auto``.
    """
    shares = host_shares(spec, hosts)
    findings: list[Finding] = []
    groups: dict[str, NodeGroup] = {}
    for entry in entries(spec):
        if flavors and entry.name not in flavors:
            continue
        if entry.flavor.is_windows:
            findings.append(finding(Code.WINDOWS_IN_CLUSTER, place=entry.name))
            continue
        problems = list(_problems(spec, entry, groups))
        findings += problems
        if not any(problem.severity is Severity.ERROR for problem in problems):
            group = _group(spec, entry, shares)
            groups[group.name] = group
    return Groups(groups=tuple(groups.values()), findings=tuple(findings))


def gputype(models: Sequence[str]) -> str:
    """The value of the label for nodes with these models: ``k4200``; Kubernetes limits its length and its ends.

    A value that is cut ends with a checksum, because nodes with the same value get the same driver.
    """
    text = ".".join(models)
    if len(text) > _LABEL:
        text = f"{text[: _LABEL - 9]}-{zlib.crc32(text.encode()):08x}"
    return text.strip("._-")


def _group(spec: Spec, entry: Entry, shares: Sequence[HostShare]) -> NodeGroup:
    sizes, unsized = sizes_of(entry, shares)
    models = _models(spec, entry)
    return NodeGroup(
        flavor=entry.name,
        name=node_name(entry.name),
        count=entry.count,
        models=models,
        alternatives=_chooses(spec, entry),
        resource=resource_of(spec.models[models[0]]) or "",
        sizes=sizes,
        unsized=tuple(unsized),
    )


def _models(spec: Spec, entry: Entry) -> tuple[str, ...]:
    return tuple(sorted({model for name in entry.models for model in _choice(spec, name)}))


def _chooses(spec: Spec, entry: Entry) -> bool:
    return any(len(_choice(spec, name)) > 1 for name in entry.models)


def _choice(spec: Spec, name: str) -> tuple[str, ...]:
    """The models among which Nova chooses for a model, or for the alias of a selection."""
    return spec.models_of(spec.alias_of(name))


def node_name(text: str) -> str:
    """Text as a name of an object: ``g1-k4200-2``. The charts require a letter first, and three characters."""
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return (words if re.match(r"[a-z].{2}", words) else f"gpu-{words}")[:_NAME].strip("-")


def _problems(spec: Spec, entry: Entry, groups: Collection[str]) -> Iterator[Finding]:
    models = _models(spec, entry)
    resources = {resource_of(spec.models[model]) for model in models}
    unknown = [model for model in models if resource_of(spec.models[model]) is None]
    if classes := requested_classes(entry.flavor.extra_specs).keys() & {DEFAULT_CLASS, *vgpu_requests(spec)}:
        yield finding(Code.VIRTUAL_GPU_IN_CLUSTER, place=entry.name, classes=", ".join(sorted(classes)))
    if unknown or not models:
        yield finding(Code.NO_DEVICE_PLUGIN, place=entry.name, models=", ".join(unknown) or "none")
    elif len(resources) > 1:
        yield finding(Code.SEVERAL_DEVICE_PLUGINS, place=entry.name, resources=", ".join(sorted(map(str, resources))))
    elif len(models) > 1:
        code = Code.MODEL_OF_NODE_UNKNOWN if _chooses(spec, entry) else Code.SEVERAL_MODELS_IN_NODE
        yield finding(code, place=entry.name, models=", ".join(models), label=GPUTYPE)
    if node_name(entry.name) in groups or "$" in entry.name:
        yield finding(Code.NODE_GROUP_NAME, place=entry.name, name=node_name(entry.name))


def resource_of(model: Model) -> str | None:
    """The resource; None if gpustack knows no plug-in for the model."""
    card = card_of(model)
    own = _OF_MODULE.get(requirement_of(card).module or "") if card else None
    return _OF_VENDOR.get(model.match.vendor, own)
