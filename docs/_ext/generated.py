"""Writes the pages that are made from data: the findings' catalogue, the spec reference, the catalogue of cards.

They can't fall behind the code, because the code reads the same data.
"""

import functools
import importlib.metadata
import inspect
import os
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import nova_reference
import older_files
import protection
import spec_reference
import yaml
from finding_pages import finding_pages, findings_page
from floors import picture
from sphinx.application import Sphinx

from gpustack.base import errors
from gpustack.changes.change import ChangeResult
from gpustack.cli.app import Gpustack
from gpustack.cli.change import kinds
from gpustack.cli.registry import by_job
from gpustack.cli.schema import documents
from gpustack.configure import plugin_api as nova_api
from gpustack.offer.guest.requirements import driver_text
from gpustack.pci import catalogue
from gpustack.prepare import plugin_api as prepare_api
from gpustack.repair import plugin_api as repair_api
from gpustack.repair import reference as cleanup
from gpustack.repair.classes import CLASSES
from gpustack.repair.repair import IDENTITY
from gpustack.repair.verdict import Repair, Status


def cards_page() -> str:
    """Every known card, maker after maker, then what its quirks mean."""
    lines = [
        "# Cards",
        "",
        "The catalogue names cards and tells of their quirks. Nothing depends on it: a card that is not listed works",
        "all the same, from its PCI class. How Nova lists a card is decided by what the host shows.",
        "",
    ]
    vendor = ""
    for card in catalogue.cards():
        if card.vendor != vendor:
            vendor = card.vendor
            lines += [
                "",
                f"## {catalogue.vendor_name(vendor)}",
                "",
                "| ids | card | family | memory | functions | guest driver | quirks |",
            ]
            lines += ["|---|---|---|---|---|---|---|"]
        memory = " or ".join(f"{size} GiB" for size in card.memory_gib)
        quirks = ", ".join(f"[{key}](#{key})" for key in card.quirks)
        functions = ", ".join(card.functions)
        ids = f"`{card.vendor}:{card.product}`"
        needs = f"{driver_text(card)} | {quirks}"
        lines.append(f"| {ids} | {card.name} | {card.family} | {memory} | {functions} | {needs} |")
    lines += ["", "## Quirks", ""]
    for key, quirk in catalogue.quirks().items():
        lines += [f"({key})=", f"### {quirk.title}", "", quirk.explanation.strip(), ""]
        lines += [f"Remedy:\n: {quirk.remedy.strip()}", "", f"Source:\n: {quirk.source.strip()}", ""]
    return "\n".join(lines)


def exit_codes() -> str:
    """The table of exit codes, to be included."""
    return "\n".join(
        ["| code | meaning |", "|---|---|", *(f"| {c} | {m} |" for c, m in errors.exit_codes().items()), ""]
    )


def documents_page() -> str:
    """The data of each command, and the keys of each object."""
    tables = documents()
    lines = [
        "# Data of commands",
        "",
        "With `-f json` and `-f yaml`, commands print these data. `gpustack schema COMMAND` prints the same as JSON",
        "Schema. Later versions add keys; they do not remove any, and do not change their types. `[T]` is a list of T,",
        "`{T}` an object with values of T; `?` marks values that may be null, and keys that not every object has.",
        "",
    ]
    lines += ["| Command | Data |", "|---|---|"]
    lines += [f"| `gpustack {name}` | {_linked(kind)} |" for name, kind in sorted(tables["commands"].items())]
    for name, keys in tables.items():
        if name != "commands":
            lines += ["", f"(data-{name})=", f"## {name}", "", "| Key | Type | Meaning |", "|---|---|---|"]
            parts = {key: text.partition(": ") for key, text in keys.items()}
            lines += [f"| `{key}` | {_linked(kind)} | {meaning} |" for key, (kind, _, meaning) in parts.items()]
    return "\n".join([*lines, ""])


def _linked(kind: str) -> str:
    """A type with links to the objects in it."""
    names = {word for word in re.findall("[a-z_]+", kind) if word in documents()}
    named = re.sub("[a-z_]+", lambda word: f"[{word[0]}](#data-{word[0]})" if word[0] in names else word[0], kind)
    return named.replace("|", "\\|")


def undone() -> str:
    """The table of changes and what an undo does, to be included."""
    rows = {(re.split(r"[:;.]", inspect.getdoc(kind) or "")[0], kind.undone) for kind in kinds().values()}
    return "\n".join(
        ["| Change | Undo |", "|---|---|", *(f"| {change} | {undo} |" for change, undo in sorted(rows)), ""]
    )


def plugin_apis() -> str:
    """The functions of each ``plugin_api`` with their signatures, to be included."""
    lines: list[str] = []
    for module in (nova_api, prepare_api, repair_api):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                parameters = ", ".join(inspect.signature(function).parameters)
                lines += [f"`{module.__name__}.{name}({parameters})`"]
                lines += [f": {(function.__doc__ or '').partition(chr(10))[0]}", ""]
    return "\n".join(lines)


def commands_page() -> str:
    """The help of every command, as ``gpustack … --help`` prints it."""
    lines = [
        "# Commands",
        "",
        "Commands have the shape `gpustack <object> <action>`. Lists take `-f table|json|yaml|value|csv`, `-c COLUMN`",
        "and `--sort-column`. Data goes to standard output, everything else to standard error. The exit codes have",
        "[a page of their own](../exit-codes.md).",
        "",
    ]
    names = [entry.name.replace("_", " ") for entry in importlib.metadata.entry_points(group="gpustack.cli")]
    app = Gpustack()
    for job, of_job in by_job(names).items():
        links = ", ".join(f"[{name}](#gpustack-{name.replace(' ', '-')})" for name in of_job)
        lines += [f"## {job}", "", links, ""]
        for name in of_job:
            with mock.patch.dict(os.environ, COLUMNS="88"):
                text = app.parser_of(name).format_help().rstrip()
            lines += [f"### gpustack {name}", "", "```text", text, "```", ""]
    return "\n".join(lines)


def schemas_page() -> str:
    """The schemas of Nova's databases that clean-up is tested with, from the tests' own data."""
    files = Path(__file__).parents[2] / "tests" / "unit" / "novadb" / "schemas"
    made = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(files.glob("*.yaml"))}
    titles = {"sqlite": "SQLite", "mariadb": "MariaDB", "postgresql": "PostgreSQL"}
    lines = [
        "# Schemas that clean-up knows",
        "",
        "For each release its own migrations were run, on each kind of database; a known leak of classes A, B, C, E",
        "and F is then found in the tables that came of it, repaired, and put back. Up to Wallaby a schema is a number",
        "(`migrate_version`), from Xena on a revision (`alembic_version`). Any other is refused, by name and number.",
        "",
        f"| release | cell | API database | {' | '.join(titles.values())} |",
        f"|---|---|---|{'---|' * len(titles)}",
    ]
    for release in made["sqlite"]["cell"]["heads"]:
        heads = [next(iter(made["sqlite"][kind]["heads"][release].values())) for kind in ("cell", "api")]
        tried = [
            "tried" if release in made.get(dialect, {"cell": {"heads": ()}})["cell"]["heads"] else ""
            for dialect in titles
        ]
        lines.append(f"| {release.capitalize()} | `{heads[0]}` | `{heads[1]}` | {' | '.join(tried)} |")
    return "\n".join([*lines, ""])


def _worlds(tested: dict[str, Any], test: str) -> list[str]:
    worlds: dict[str, list[str]] = tested["worlds"]
    return worlds.get(test) or worlds[test.partition("::")[0]]


def _database(world: str) -> str:
    return next((kind for kind in ("mariadb", "postgresql") if kind in world.split("-")), "sqlite")


def tested_page() -> str:
    """What each class of clean-up is tested with, from the tests' own data."""
    file = Path(__file__).parents[2] / "tests" / "unit" / "repair" / "classes.yaml"
    tested = yaml.safe_load(file.read_text(encoding="utf-8"))
    words = {"placement": "PCI in Placement", "mariadb": "MariaDB", "postgresql": "PostgreSQL"}
    lines = [
        "# What clean-up is tested with",
        "",
        "For each class: the tests that make its leak with a real Nova, and those that make what only looks like it",
        "and must be left alone. A test of the project sees that all are there. They lie in `tests/nova/cleanup`, and",
        "`make test-all` runs them; `cases/…` are facts without a Nova, in `tests/unit/repair`.",
        "",
        "Each repair of each class is also",
        "",
        "- killed at every statement that writes and at every write of the journal, ended by a second run, and undone:",
        "  `tests/unit/repair/test_killed.py`; classes Q and S: `tests/nova/cleanup/test_placement.py`;",
        "- applied and undone on MariaDB and on PostgreSQL: `tests/nova/cleanup/test_servers.py`; those of A, B, C, E",
        "  and F in every release's own schema as well: `test_heads_on_servers.py`.",
        "",
        "| tests | Nova, its database (SQLite where none is named), PCI in Placement |",
        "|---|---|",
    ]
    for module, worlds in sorted(tested["worlds"].items()):
        told = [", ".join(words.get(word, word) for word in world.split("-")) for world in worlds]
        file, _, test = module.partition("::")
        lines.append(f"| `{file}.py`{f': `{test}`' if test else ''} | {'; '.join(told)} |")
    lines += [
        "",
        "`make test` makes the leak of each class on both releases. The table shows how often `make test-all` makes",
        "it on each database (a test that runs in two worlds counts twice). `make cleanup-servers` makes every one of",
        "them on both servers with both releases, in",
        f"{', '.join(f'`test_{name}.py`' for name in tested['on_servers'])};",
        "resizes into another cell on MariaDB alone, since Nova itself fails at them with PostgreSQL.",
        "",
        "| class | SQLite | MariaDB | PostgreSQL |",
        "|---|---|---|---|",
    ]
    for klass, entry in sorted(tested["classes"].items()):
        met = Counter(_database(world) for test in entry["leak"] for world in _worlds(tested, test))
        counts = " | ".join(str(met[kind] or "") for kind in ("sqlite", "mariadb", "postgresql"))
        lines.append(f"| {CLASSES[klass]}: {CLASSES[klass].title} | {counts} |")
    for klass, entry in sorted(tested["classes"].items()):
        lines += ["", f"## {CLASSES[klass]}: {CLASSES[klass].title}", ""]
        for kind, title in (("leak", "The leak"), ("alike", "What looks like it")):
            lines += [f"{title}:", "", *(f"- `{test}`" for test in entry[kind]), ""]
    return "\n".join([*lines, ""])


def cleanup_page() -> str:
    """The classes, statuses, repairs and outcomes of clean-up."""
    lines = ["# Classes and outcomes of clean-up", "", "## Classes", ""]
    lines += ["| class | evidence | repairs | runbook |", "|---|---|---|---|"]
    for letter, one in CLASSES.items():
        names = ", ".join(f"`{repair}`" for repair in cleanup.repairs(letter)) or "report only"
        link = f"[class {letter}](../../runbook/class-{letter.lower()}.md)"
        lines.append(f"| {one}: {one.title} | {cleanup.evidence(letter)} | {names} | {link} |")
    lines += ["", "The second evidence of each repair is in [Why clean-up is safe](../../explanation/safety.md).", ""]
    lines += ["## Statuses", "", "| status | meaning |", "|---|---|"]
    lines += [f"| *{name}* | {text} |" for name, text in cleanup.meanings(Status).items()]
    lines += ["", "## Repairs, safest first", "", "| repair | effect | asked | compared by undo |", "|---|---|---|---|"]
    effects = cleanup.meanings(Repair)
    lines += [f"| `{one}` | {effects[one]} | {asked} | {undo} |" for one, (asked, undo) in cleanup.REPAIRS.items()]
    for table, columns in IDENTITY.items():
        lines += [
            "",
            f"undo compares these columns of a row of `{table}`: {', '.join(f'`{name}`' for name in columns)}.",
        ]
    texts = cleanup.meanings(ChangeResult)
    lines += ["", "## Outcomes of apply and undo", "", "| outcome | meaning | exit code |", "|---|---|---|"]
    lines += [f"| *{one}* | {texts[one]} | {cleanup.CODES[one]} |" for one in ChangeResult]
    return "\n".join([*lines, ""])


def speed_page() -> str:
    """The limits of the benches."""
    table = tomllib.loads((Path(__file__).parents[2] / "bench" / "limits.toml").read_text(encoding="utf-8"))
    lines = [
        "# Limits of time and memory",
        "",
        "Each figure is measured beside its peer in the same run, and must not exceed its share of it. A peer that is",
        "a number is a limit by itself. Figures in other pages are of single runs, and name the bench.",
        "",
        "| bench | what is measured | compared with | at most |",
        "|---|---|---|---|",
    ]
    rows = ((f"{bench}.{name}", limit) for bench, limits in table.items() for name, limit in limits.items())
    lines += [f"| `{name}` | {limit['work']} | {limit['peer']} | {limit['most']:g} |" for name, limit in rows]
    return "\n".join([*lines, ""])


def write(app: Sphinx) -> None:
    """Write the generated pages, each only when it changed, so that a second build is quick."""
    directory = Path(app.srcdir) / "reference" / "generated"
    pages = {
        "findings.md": findings_page(),
        "spec.md": spec_reference.markdown(),
        "cards.md": cards_page(),
        "commands.md": commands_page(),
        "exit-codes.inc": exit_codes(),
        "undo.inc": undone(),
        "protection.inc": protection.table(),
        "plugin-apis.inc": plugin_apis(),
        "older-files.inc": older_files.table(),
        "releases.md": nova_reference.markdown(),
        "schemas.md": schemas_page(),
        "documents.md": documents_page(),
        "tested.md": tested_page(),
        "speed.md": speed_page(),
        "cleanup.md": cleanup_page(),
        "floors.svg": picture(Path(app.srcdir) / "explanation" / "architecture.md"),
        **{f"../findings/{name}": text for name, text in finding_pages().items()},
    }
    for name, text in pages.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


_SHARED: dict[str, Any] = {}


def share_navigation(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object) -> None:
    """Make the navigation of the findings' pages once. It has no entry for them, so it is equal on all."""
    if page.startswith("reference/findings/"):
        context["toctree"] = _SHARED.setdefault("toctree", functools.cache(context["toctree"]))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write)
    app.connect("html-page-context", share_navigation, priority=100)  # before the theme
    return {"parallel_read_safe": True}
