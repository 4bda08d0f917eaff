"""Checks of a spec's quotas beyond its schema: existing models, a default for each, one resource class for each.

Checks of the section ``tenancy`` beyond its schema.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpustack.base.findings import Severity
from gpustack.spec.attributes import POOL_CLASS
from gpustack.spec.document import Document, Path, Problem, entries, mapping, quoted
from gpustack.spec.extra_specs import REQUIRED, TRAIT
from gpustack.spec.markers import MARKERS, marker_of
from gpustack.spec.tenancy import DEFAULT_TRAIT

_DEFAULT: Path = ("quotas", "default")


def check_quotas(document: Document) -> Iterator[Problem]:
    """The problems of a spec's quotas; malformed parts are left to the schema."""
    models, flavors, quotas, nova = (mapping(document.data, key) for key in ("models", "flavors", "quotas", "nova"))
    default = mapping(quotas, "default")
    projects = mapping(quotas, "projects")
    tables: dict[Path, Mapping[str, Any]] = {_DEFAULT: default}
    tables |= {("quotas", "projects", name): mapping(projects, name) for name in projects}
    for path, table in tables.items():
        for name in table:
            if models and name not in models:
                yield document.unknown_model((*path, name), name, models)
            elif path != _DEFAULT and name not in default:
                message = f"expected a limit for {quoted(name)} in quotas.default, for all other projects"
                yield document.problem((*path, name), message, at_key=True)
    by_device = quotas.get("count") == "device"
    pooled = nova.get("class_by") == "pool"
    yield from _shared(document, models, default, (_pool if pooled else _device_class) if by_device else _marker)
    for name, flavor in flavors.items() if default and not by_device else ():
        if isinstance(flavor, dict) and "gpu" in flavor:
            message = "markers do not count GPUs selected by attribute: set quotas.count to device, or name a model"
            yield document.problem(("flavors", name, "gpu"), message, at_key=True)
    if by_device and nova.get("placement") != "schedule":
        message = "Nova counts devices only with PCI in Placement (nova.placement: schedule)"
        yield document.problem(("quotas", "count"), message)
    for name in default if by_device else ():
        if mapping(models.get(name), "vgpu"):
            message = "the class of vGPUs depends on the driver of each host: set quotas.count to marker"
            yield document.problem((*_DEFAULT, name), message, at_key=True)
    for name, model in models.items() if quotas else ():
        if isinstance(model, dict) and str(model.get("resource_class") or "").upper().startswith(MARKERS):
            message = f"names that begin with {MARKERS} are reserved for the marker classes of quotas"
            yield document.problem(("models", name, "resource_class"), message)


def _shared(
    document: Document, models: Mapping[str, Any], default: Mapping[str, Any], class_of: Callable[[str, Any], str]
) -> Iterator[Problem]:
    """Models that Nova can't count separately."""
    by_class: dict[str, str] = {}
    for name in default:
        if not isinstance(models.get(name), dict):
            continue
        other = by_class.setdefault(class_of(name, models[name]), name)
        if other != name:
            both = f"{quoted(name)} and {quoted(other)}"
            message = f"Nova counts {both} as one resource class: give a limit for one of them"
            yield document.problem((*_DEFAULT, name), message, at_key=True)


def _marker(name: str, model: Mapping[str, Any]) -> str:
    return marker_of(str(model.get("alias") or name))


def _device_class(name: str, model: Mapping[str, Any]) -> str:
    match, vfs = mapping(model, "match"), mapping(model, "vfs")
    return str(
        model.get("resource_class") or f"{match.get('vendor')}_{vfs.get('product') or match.get('product')}"
    ).upper()


def _pool(name: str, model: Mapping[str, Any]) -> str:
    if mapping(model, "match").get("function") == "virtual" or model.get("vfs") is not None:
        return _device_class(name, model)  # the pool has no virtual functions
    return str(model.get("resource_class") or POOL_CLASS).upper()


def check_tenancy(document: Document) -> Iterator[Problem]:
    """Aggregates that reserve nothing, flavors that refuse the hosts, and projects without hosts or flavors."""
    flavors, tenancy = mapping(document.data, "flavors"), mapping(document.data, "tenancy")
    aggregates = {name: entry for name, entry in mapping(tenancy, "aggregates").items() if isinstance(entry, dict)}
    for name, entry in aggregates.items():
        if entry.get("isolated") is False and not entry.get("projects"):
            message = "the aggregate reserves nothing: list projects, or set isolated: true"
            yield document.problem(("tenancy", "aggregates", name), message, at_key=True)
    key = f"{TRAIT}{tenancy.get('trait', DEFAULT_TRAIT)}"
    for name, flavor in flavors.items() if tenancy else ():
        if mapping(flavor, "extra_specs").get(key, REQUIRED) != REQUIRED:
            message = f"GPU hosts have the trait; expected {REQUIRED!r}, which gpustack derives from tenancy"
            yield document.problem(("flavors", name, "extra_specs", key), message)
    access = {
        name: [str(project) for project in flavor["access"]]
        for name, flavor in flavors.items()
        if isinstance(flavor, dict) and isinstance(flavor.get("access"), list)
    }
    yield from _without_hosts(document, aggregates, access)
    if access.keys() == flavors.keys():
        yield from _without_flavors(document, aggregates, access)


def _without_hosts(
    document: Document, aggregates: Mapping[str, Mapping[str, Any]], access: Mapping[str, list[str]]
) -> Iterator[Problem]:
    """Projects that may use a flavor, if all hosts are reserved for others."""
    if not any(entries(entry, "projects") and not entry.get("hosts") for entry in aggregates.values()):
        return
    accepted = {str(project) for entry in aggregates.values() for project in entries(entry, "projects")}
    for name, projects in access.items():
        for number, project in enumerate(projects):
            if project not in accepted:
                message = f"no GPU host accepts {project}: add it, written the same way, to an aggregate"
                yield document.problem(("flavors", name, "access", number), message, severity=Severity.WARNING)


def _without_flavors(
    document: Document, aggregates: Mapping[str, Mapping[str, Any]], access: Mapping[str, list[str]]
) -> Iterator[Problem]:
    """Projects with hosts that see no flavor of the spec: all are private."""
    seeing = {project for projects in access.values() for project in projects}
    for name, entry in aggregates.items() if access else ():
        for number, project in enumerate(map(str, entries(entry, "projects"))):
            if project not in seeing:
                why = f"no flavor of the spec is visible to {project}: add it, written the same way, to `access` of one"
                path = ("tenancy", "aggregates", name, "projects", number)
                yield document.problem(path, why, severity=Severity.WARNING)
