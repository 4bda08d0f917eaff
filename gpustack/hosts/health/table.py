"""The columns of `gpustack health`: GPUs, and signs of a log."""

from gpustack.base.columns import Column, codes, described
from gpustack.hosts.facts.collector.signs import Event
from gpustack.hosts.health.check import Health

SIGNS: tuple[Column[Event], ...] = (
    Column("id", lambda event: event.sign, "Id"),
    Column("address", lambda event: event.address, "Address"),
    Column("code", lambda event: event.code, "Code"),
    Column("severity", lambda event: event.severity, "Severity"),
    Column("count", lambda event: event.count, "Count", lambda event: str(event.count)),
    Column("first", lambda event: event.first, "First"),
    Column("last", lambda event: event.last, "Last"),
    Column("earlier_boot", lambda event: event.earlier, "Earlier boot", lambda event: str(event.earlier)),
    Column("message", lambda event: event.message, "Message"),
)
"""The columns of the signs in a kernel log."""
COLUMNS: tuple[Column[Health], ...] = (
    Column("host", lambda health: health.host.hostname, "Host"),
    Column("address", lambda health: health.gpu.main.address, "Address"),
    Column("model", lambda health: health.gpu.name, "Model"),
    Column(
        "findings",
        lambda health: [entry.to_dict() for entry in health.findings],
        "Health",
        lambda health: codes(health.findings),
    ),
    Column("responds", lambda health: health.gpu.main.responds),
    Column("fatal", lambda health: health.errors.fatal if health.errors else None, "Fatal"),
    Column("nonfatal", lambda health: health.errors.nonfatal if health.errors else None, "Nonfatal"),
    Column("correctable", lambda health: health.errors.correctable if health.errors else None, "Corrected"),
    Column("link_width", lambda h: h.gpu.main.link.width if h.gpu.main.link else None, "Link", lambda h: _width(h)),
    Column("power_state", lambda health: health.gpu.main.power_state, "Power"),
    Column("max_link_width", lambda health: health.gpu.main.link.max_width if health.gpu.main.link else None),
    Column("reset_methods", lambda health: list(health.gpu.main.reset_methods)),
    Column(
        "signs",
        lambda health: [described(SIGNS, event) for event in health.signs],
        "",
        lambda health: ", ".join(event.sign for event in health.signs),
    ),
)
"""The columns of GPUs."""


def _width(health: Health) -> str:
    link = health.gpu.main.link
    return f"x{link.width}" if link and link.width else ""
