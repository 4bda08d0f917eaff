"""What ``gpustack explain`` prints about a finding, a class of clean-up, a card or a message."""

import difflib
import re
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from typing import Any, NamedTuple

from gpustack.base.errors import UsageError
from gpustack.base.files import share_dir
from gpustack.base.findings import Definition, definitions
from gpustack.base.text import paragraph, quoted
from gpustack.cli import pages
from gpustack.hosts.facts.collector.kernel_log import TOKEN
from gpustack.hosts.facts.collector.signs import normalised
from gpustack.hosts.facts.collector.text import lines
from gpustack.hosts.health.check import sign_findings
from gpustack.hosts.health.kernel_log import on_host, rows, table
from gpustack.offer.guest.requirements import fields
from gpustack.pci import catalogue
from gpustack.pci.catalogue import Card, quirks_of
from gpustack.repair import classes, reference
from gpustack.repair.classes import CLASSES, CleanupClass

_LISTED = 20


class Explanation(NamedTuple):
    """The kind of a subject, the paragraphs about it, and its values for programs."""

    kind: str
    lines: Iterator[str]
    values: dict[str, Any]


def of(subject: str) -> Explanation:
    """The explanation of a subject.

    :raises UsageError: when the subject is unknown.
    """
    if re.fullmatch(r"GPU\d+", subject, re.IGNORECASE):
        definition = _definition(subject.upper())
        return Explanation("finding", _finding(definition), asdict(definition))
    if cleanup_class := classes.lookup(subject):
        return Explanation("class", _class(cleanup_class), asdict(cleanup_class))
    if outcome := reference.lines(subject.lower()):
        return Explanation("status", map(paragraph, outcome), {})
    if cards := catalogue.matching(subject):
        return Explanation("card", _cards(cards), {"cards": [asdict(card) for card in cards]})
    what = f"{subject!r} is no code of a finding, no class of clean-up and no card of the catalogue"
    raise UsageError(what, remedy=_similar(subject))


def of_message(text: str) -> Explanation:
    """The explanation of a message of a kernel or a driver."""
    return Explanation("message", _message(text), {})


def _message(text: str) -> Iterator[str]:
    """The sign of a message: its meaning, remedy and source."""
    if not (found := table().events(lines(text))):
        raise UsageError("no sign matches this message", remedy="pass the complete message, as dmesg prints it")
    event = found[-1]
    matched = [table().match([line.text], set(TOKEN.findall(line.text))) for line in normalised(lines(text))]
    forms = chain((match[0] for match in reversed(matched) if match), rows())
    row = min((row for row in forms if row["id"] == event.sign), key=lambda row: row.get("code") != event.code)
    yield f"{event.sign}: {row['meaning']}"
    yield ""
    if event.address:
        yield _field("Address", event.address)
    if event.code is None:
        yield _field("Harmless", row.get("reason", "it names no failure"))
    else:
        if "action" in row and row.get("code") == event.code:
            yield _field("Action", row["action"])
        for entry in sign_findings((event, on_host(event)), "message"):
            field, title = "Finding" if entry.code == event.code else "On a host", definitions()[entry.code].title
            yield _field(field, f"{entry.severity.upper()} {entry.code} {title}")
            yield _field("Remedy", entry.remedy)
    yield _field("Source", row.get("source", "NVIDIA, Xid catalog"))
    if row.get("first"):
        yield _field("Versions", f"{row['first']} to {row['last']}")


def _definition(code: str) -> Definition:
    known = {str(key): definition for key, definition in definitions().items()}
    if code not in known:
        ranges = ", ".join(sorted({known_code[:4] for known_code in known}))
        raise UsageError(f"no finding has the code {code}", remedy=f"codes begin with {ranges}")
    return known[code]


def _similar(subject: str) -> str:
    names = [one.name for one in CLASSES.values()]
    if table().events([subject]):
        return f"for a message of a kernel: gpustack explain --message {quoted(subject)}"
    if re.fullmatch(r"[0-9a-f:]+\.[0-7]", subject, re.IGNORECASE):
        return f"for a GPU of a host: gpustack gpu show HOST {quoted(subject)}"
    if close := re.findall(r"\bGPU\d{3}\b", subject) or difflib.get_close_matches(subject.lower(), names, n=3):
        return f"did you mean {' or '.join(close)}?"
    return f"classes: {', '.join(map(str, CLASSES.values()))}"


def _finding(definition: Definition) -> Iterator[str]:
    yield f"{definition.severity.upper()} {definition.code} {definition.title}"
    yield ""
    yield paragraph(definition.explanation)
    yield ""
    yield _field("Message", definition.message)
    yield _field("Remedy", definition.remedy)
    if definition.basis:
        yield _field("Basis", definition.basis)
    if definition.source:
        yield _field("Source", definition.source)
    yield from _page(pages.finding(definition.code))


def _class(cleanup_class: CleanupClass) -> Iterator[str]:
    """The runbook's page, which is part of an installation."""
    page = share_dir("docs/runbook") / f"class-{cleanup_class.letter.lower()}.md"
    try:
        yield page.read_text(encoding="utf-8").rstrip("\n")
    except FileNotFoundError:
        yield f"# Class {cleanup_class}: {cleanup_class.title}"
    yield ""
    yield from map(paragraph, reference.lines(cleanup_class.letter))
    yield from _page(pages.page(f"runbook/class-{cleanup_class.letter.lower()}.html"))


def _cards(cards: tuple[Card, ...]) -> Iterator[str]:
    for card in cards[:_LISTED]:
        yield f"{card.full_name} [{card.vendor}:{card.product}]"
        if len(cards) > 1:
            continue
        yield _field("Family", f"{card.family}, {card.kind}")
        if card.subsystems:
            yield _field("Subsystems", ", ".join(":".join(pair) for pair in card.subsystems))
        yield _field("Memory", card.memory or "unknown, or shared with the host")
        if card.gpus > 1:
            yield _field("GPUs", f"{card.gpus} on one board, each a PCI function of its own")
        yield _field("Functions", ", ".join(card.functions))
        yield _field("Type in Nova", card.dev_type or "as the host shows it: type-PF with SR-IOV, otherwise type-PCI")
        for name, text in fields(card):
            yield _field(name, text)
        yield _field("Source", card.source)
        for quirk in quirks_of(card):
            yield from ("", quirk.title, "", paragraph(quirk.explanation), "")
            yield _field("Remedy", quirk.remedy)
            yield _field("Source", quirk.source)
    if len(cards) > 1:
        more = f"and {len(cards) - _LISTED} more; " if len(cards) > _LISTED else ""
        yield from ("", f"{more}gpustack explain VENDOR:DEVICE shows one of them in full")
    yield from _page(pages.page("reference/generated/cards.html"))


def _page(url: str | None) -> Iterator[str]:
    if url:
        yield from ("", url)


def _field(name: str, text: str) -> str:
    return paragraph(f"{name}: {text}", others="  ")
