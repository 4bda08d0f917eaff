"""Check a guest from outside: what a flavor promises, and the findings of :mod:`gpustack.offer.guest.inside`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpustack.base.errors import UsageError
from gpustack.base.files import data_table
from gpustack.base.findings import Code, Finding, Severity, definitions, finding
from gpustack.hosts.health.kernel_log import rows as rows_of_signs
from gpustack.hosts.health.kernel_log import table
from gpustack.offer.guest.inside import compare
from gpustack.pci import catalogue
from gpustack.pci.catalogue import requirement_of
from gpustack.spec.attributes import card_of
from gpustack.spec.flavors import Flavor
from gpustack.spec.model import Spec
from gpustack.spec.requests import entries, models_of

_SIGN_KEYS = ("id", "code", "severity", "scope", "kind", "number", "action", "pattern", "words", "ends")


@dataclass(frozen=True, kw_only=True)
class Promise:
    """The GPUs of a flavor's instances.

    :ivar ids: the accepted ``vendor:product``, also of virtual functions; empty if unknown.
    """

    count: int
    ids: tuple[str, ...] = ()


def promises(spec: Spec, *, public: bool = False) -> dict[str, Promise]:
    """The GPUs of the instances of each flavor of a spec, by the flavor's name in the cloud.

    :param public: only those of flavors that all projects may use.
    """
    return {
        entry.name: Promise(count=entry.count, ids=_ids(spec, entry.flavor))
        for entry in entries(spec)
        if entry.flavor.access is None or not public
    }


def promise(spec: Spec, name: str) -> Promise:
    """The GPUs of the instances of one flavor.

    :raises UsageError: if the spec has no flavor of this name.
    """
    known = promises(spec)
    if name not in known:
        raise UsageError(f"the spec has no flavor {name}", remedy=f"flavors: {', '.join(known) or 'none'}")
    return known[name]


def _ids(spec: Spec, flavor: Flavor) -> tuple[str, ...]:
    """The ids of all cards that the instances of a flavor can get, and of their virtual functions."""
    ids: dict[str, None] = {}
    for model in map(spec.models.__getitem__, models_of(spec, flavor)):
        card = card_of(model)
        functions = requirement_of(card).functions if card else ()
        ids |= dict.fromkeys(
            f"{model.match.vendor}:{product}" for product in (model.match.product, model.ids[1], *functions)
        )
    return tuple(ids)


def findings(facts: Mapping[str, Any], promised: Promise | None, where: str) -> Iterator[Finding]:
    """The findings about a guest.

    :param where: the guest's name.
    """
    for problem in compare.problems(dict(facts), asdict(promised) if promised else None):
        code = _codes().get(problem["kind"])
        if code is not None:  # a guest can report codes that are no signs
            severity = Severity(problem["severity"]) if problem.get("severity") else None
            yield finding(code, place=f"{where} {problem['place']}", severity=severity, **problem["values"])


def _codes() -> dict[str, Code]:
    """The codes of the kinds of problems; a sign's problem has its code as kind."""
    named = {kind: Code[name] for kind, name in data_table("guest_problems.toml").items()}
    return {**named, **{code: Code(code) for code in sorted(table().codes)}}  # equal renderings are equal files


def consoles() -> list[list[str | None]]:
    """Vendor and product of the catalogue's console adapters; None is any product."""
    return [[entry["vendor"], entry.get("product")] for entry in data_table("cards.toml")["console"]]


def data(flavors: Mapping[str, Promise] | None = None) -> dict[str, Any]:
    """The data that the check needs inside a guest."""
    texts = {
        kind: {
            "code": code.value,
            "severity": definitions()[code].severity.value,
            "message": definitions()[code].message,
            "remedy": definitions()[code].remedy,
        }
        for kind, code in _codes().items()
    }
    promised = {name: asdict(entry) for name, entry in (flavors or {}).items()}
    signs = [{key: row[key] for key in _SIGN_KEYS if key in row} for row in rows_of_signs()]
    return {"consoles": consoles(), "texts": texts, "flavors": promised, "signs": signs}


def rows(facts: Mapping[str, Any], found: Sequence[Finding], where: str) -> list[dict[str, Any]]:
    """The GPUs with the codes of their findings, for tables."""
    return [
        {
            "guest": where,
            "address": gpu["address"],
            "card": catalogue.describe(gpu["vendor"], gpu["product"], gpu["class"]),
            "driver": gpu["driver"],
            "unplaced": gpu["unplaced"],
            "findings": [entry.code.value for entry in found if entry.place == f"{where} {gpu['address']}"],
        }
        for gpu in facts["gpus"] or ()
    ]
