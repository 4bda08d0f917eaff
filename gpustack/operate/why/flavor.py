"""Why instances of a flavor find no host: the first step of Nova that refuses each host. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpustack.base.columns import Column, described
from gpustack.base.files import data_table
from gpustack.base.findings import Code, Finding, finding
from gpustack.base.text import listed
from gpustack.nova_options.scheduler import Scheduler
from gpustack.operate.capacity.count import SHOWN_HOSTS, UNKNOWN_GPUS
from gpustack.operate.capacity.model import Accepted, Demand, Host, Outcome, Step
from gpustack.operate.capacity.room import Room
from gpustack.operate.capacity.walk import Walk, walk

UNKNOWN = Step(name="GPUs", outcome=Outcome.UNKNOWN, doubt=UNKNOWN_GPUS)


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A first cause, and its hosts.

    :ivar step: that of the first host.
    :ivar available: the amounts on the hosts; the smallest and the largest if they are numbers.
    :ivar walks: every step of each host.
    """

    step: Step
    available: str
    walks: Mapping[str, Walk]

    @property
    def hosts(self) -> list[str]:
        """The names of its hosts."""
        return list(self.walks)

    @property
    def later(self) -> list[str]:
        """The further steps that fail."""
        failed = (step.name for done in self.walks.values() for step in done.steps if step.outcome is Outcome.FAILED)
        return [name for name in dict.fromkeys(failed) if name != self.step.name and not name.startswith("claim")]

    @property
    def text(self) -> str:
        """The step with its amounts."""
        amounts = [f"needs {self.step.wanted}"] if self.step.wanted is not None else []
        amounts += [f"free: {self.available}"] if self.available else []
        return f"{self.step.name} ({', '.join(amounts)})" if amounts else self.step.name

    @property
    def finding(self) -> Finding:
        """The cause with its fix."""
        hosts = listed(self.hosts, SHOWN_HOSTS)
        if self.step.reason is None:
            return finding(Code.WHY_UNKNOWN_GPUS, place=hosts)
        code = Code[data_table("reasons.toml")[self.step.reason]["code"]]
        return finding(code, place=hosts, step=self.text, reason=self.step.wanted)


def causes(
    hosts: Sequence[Host], demand: Demand, scheduler: Scheduler, accepted: Accepted | None = None
) -> list[Cause]:
    """Group the hosts that refuse one instance by their first cause, most hosts first."""
    groups: dict[tuple[object, ...], dict[str, tuple[Step, Walk]]] = {}
    for host in hosts:
        done = walk(Room(host), demand, scheduler, accepted, every=True)
        first = UNKNOWN if host.cards is None else done.failed
        if first is not None:
            groups.setdefault((first.name, first.wanted, first.reason), {})[host.name] = first, done
    found = [
        Cause(
            step=next(iter(group.values()))[0],
            available=_range({name: step.available for name, (step, _) in group.items()}),
            walks={name: done for name, (_, done) in group.items()},
        )
        for group in groups.values()
    ]
    return sorted(found, key=lambda cause: -len(cause.hosts))


def _range(amounts: Mapping[str, int | str | None]) -> str:
    """The amounts of hosts; of texts, those of the first host."""
    if numbers := sorted(amount for amount in amounts.values() if isinstance(amount, int)):
        return f"{numbers[0]}" if numbers[0] == numbers[-1] else f"{numbers[0]} to {numbers[-1]}"
    texts = {name: str(amount) for name, amount in amounts.items() if amount}
    name, text = next(iter(texts.items()), ("", ""))
    return f"{text} on {name}" if len({*texts.values()}) > 1 else text


def columns(*, later: bool) -> tuple[Column[Cause], ...]:
    """The columns of causes.

    :param later: whether people see further causes too.
    """
    return (
        Column("hosts", lambda cause: cause.hosts, "Hosts", lambda cause: listed(cause.hosts, SHOWN_HOSTS)),
        Column("step", lambda cause: cause.step.name, "Step"),
        Column("wanted", lambda cause: cause.step.wanted, "Needs"),
        Column("available", lambda cause: cause.available or None, "Free"),
        Column("code", lambda cause: cause.finding.code.value, "Code"),
        Column("fix", lambda cause: cause.finding.remedy, "Fix"),
        Column("later", lambda cause: cause.later, "Later" if later else "", lambda cause: ", ".join(cause.later)),
        Column("steps", lambda c: {h: [described(STEP_COLUMNS, s) for s in done.steps] for h, done in c.walks.items()}),
    )


STEP_COLUMNS: tuple[Column[Step], ...] = (
    Column("step", lambda step: step.name, "Step"),
    Column("outcome", lambda step: step.outcome.value, "Outcome", lambda step: _outcome(step)),
    Column("wanted", lambda step: step.wanted, "Needs"),
    Column("available", lambda step: step.available, "Free"),
    Column("doubt", lambda step: step.doubt or None, "Doubt"),
)
"""The columns of the steps of one host."""


def _outcome(step: Step) -> str:
    return "not evaluated" if step.outcome is Outcome.UNKNOWN and not step.doubt else step.outcome.value
