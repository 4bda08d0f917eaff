"""Show a plan as text or as an SQL script, and read it back from a file."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from gpustack.base.errors import JournalError
from gpustack.base.files import file_errors, read_text
from gpustack.base.text import in_lines, quoted
from gpustack.changes.journal import refuse_shared
from gpustack.novadb.databases import snapshot
from gpustack.novadb.model import parsed
from gpustack.novadb.sources import Sources
from gpustack.novadb.view import HostState
from gpustack.repair.apply import relatives, statements
from gpustack.repair.classes import label
from gpustack.repair.outcome import key
from gpustack.repair.plan import FORMAT, VERSION
from gpustack.repair.repair import changes
from gpustack.repair.verdict import Allocation, PlannedVerdict, Repair, Verdict

_MAX_BYTES = 64 * 1024 * 1024


def explanation(verdict: Verdict | PlannedVerdict) -> str:
    """Return the full text of a verdict: evidence, conclusion, and next step."""
    data = verdict.to_dict() if isinstance(verdict, Verdict) else verdict
    lines = [heading(data), *(f"  - {line}" for line in data["evidence"]), f"  ∴ {data['because']}"]
    lines += (f"  → {text}" for text in (data["repair"] and next_step(data), data["advice"]) if text)
    return in_lines(lines)


def heading(data: PlannedVerdict) -> str:
    """Return the class, place, status and title of a verdict."""
    location = f"on {data['host']}" if data["host"] else f"in cell {data['cell']}"
    return f"class {label(data['class'])} {location}, {data['status']}: {data['title']}"


def next_step(data: PlannedVerdict) -> str:
    """Return what a repair does."""
    moves = ", ".join(map(str, data["migrations"]))
    repairs: dict[str | None, str] = {
        "fail-migration": f"set migration {moves} to failed; Nova then frees the device",
        "restart": f"ask {data['host']} whether a restart of nova-compute is safe: gpustack cleanup apply does",
        "free": "free the row",
        "retire": "free the row and soft-delete it",
        "clear-deleted": "take owner and status off the soft-deleted row",
        "unblock": "write the row back to available",
        "block-parent": "write the physical function to unavailable",
        "clear-owner": "take the owner off the row",
        "unset-allocation": _unset_command(data),
    }
    stopped = f", while nova-compute on {data['host']} is stopped" if data["stop_service"] else ""
    return repairs[data["repair"]] + stopped


def _unset_command(data: PlannedVerdict) -> str:
    held = data.get("allocation") or {"provider": "", "consumer": ""}
    return (
        "take the allocation away in Placement, as by hand: openstack --os-placement-api-version 1.28 resource "
        f"provider allocation unset --provider {quoted(held['provider'])} {quoted(held['consumer'])}"
    )


def load_plan(path: Path) -> list[PlannedVerdict]:
    """Read the repairs of a saved plan.

    :raises JournalError: if the file cannot be read, others can write it, or it is not a plan of this version.
    """
    try:
        with file_errors(JournalError, "the plan can't be read", path):
            data = parsed(read_text(path, _MAX_BYTES, check=refuse_shared))
        if data[FORMAT] != VERSION:
            raise JournalError(f"the plan is of version {data[FORMAT]}", where=str(path), remedy="make it again")
        wanted = [verdict for verdict in data["verdicts"] if verdict["status"] == "stale"]
        for verdict in wanted:
            # Each raises if a field that is used later is missing, or of another type.
            [device["address"] + device["status"] for device in verdict["devices"]]
            hash(key(verdict)), explanation(verdict), Repair(verdict["repair"]), HostState(verdict["host_state"])
            if verdict["repair"] == "unset-allocation":
                Allocation(**verdict["allocation"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        problem = "this is no plan of gpustack cleanup, or a damaged one"
        raise JournalError(problem, where=str(path), remedy="make it again") from error
    return wanted


def script(sources: Sources, repairs: Sequence[Verdict]) -> str:
    """Return the statements of repairs for each cell's database, one transaction for each repair.

    SQLAlchemy renders the values for the database's dialect. A script cannot check how many rows a statement changed.
    The person who runs it must, and roll back unless it is exactly one.

    :raises DatabaseError: if a cell cannot be read.
    """
    moment = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    lines = ["-- Each statement must change exactly one row; roll its transaction back otherwise."]
    for cell in sources.cells:
        if not (wanted_here := [verdict for verdict in repairs if verdict.cell == cell.name]):
            continue
        with snapshot(cell.database) as connection:
            of_driver = connection.dialect
            dialect = type(of_driver)(dbapi=of_driver.dbapi, paramstyle="named")  # type: ignore[call-arg]  # no % is doubled
            dialect.initialize(connection)  # whether a backslash escapes is a setting of the server
            written = [changes(verdict, relatives(connection, verdict), moment) for verdict in wanted_here]
            all_changes = [change for changed in written for change in changed]
            made_of = [
                (verdict, statements(connection, verdict, changed, all_changes))
                for verdict, changed in zip(wanted_here, written, strict=True)
            ]
        for verdict, changed in made_of:
            rows = ", ".join(row.address for row in verdict.rows)
            lines += ["", _comment(f"cell {cell.name}: class {label(verdict.klass)} on {verdict.host} {rows}")]
            if not changed or verdict.stop:
                lines.append(_comment(next_step(verdict.to_dict())))
            if changed:
                compiled = [str(c.compile(dialect=dialect, compile_kwargs={"literal_binds": True})) for c in changed]
                lines += ["BEGIN;", *(f"{text};" for text in compiled), "COMMIT;"]
    return "\n".join(lines)


def _comment(text: str) -> str:
    """Return a comment on one line; line breaks in names are replaced."""
    return f"-- {' '.join(text.split())}"
