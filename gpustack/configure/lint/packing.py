"""Checks of the options that keep requests for several GPUs possible."""

from collections.abc import Iterator

from gpustack.base.findings import Code, Finding, finding
from gpustack.configure.lint.registry import check
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.packing import MULTIPLIER, Advised, number
from gpustack.configure.sources import PLACEMENT
from gpustack.nova_options.config import Setting

_TITLE = "Requests for several GPUs"
_SPREADS = 1.0
"""Nova's default of the multiplier. Instances are spread with it, and with any lower value."""


@check(_TITLE)
def multiplier(subject: LintSubject) -> Iterator[Finding]:
    """PCIWeigher must outvote the other weighers if flavors request a model in several counts."""
    for source in subject.schedulers if MULTIPLIER in subject.advised else ():
        setting = source.configuration.last(MULTIPLIER.option)
        if setting is not None and setting.unknown:
            continue
        weight = number(setting.value) if setting is not None else None
        if setting is None or weight is None or weight <= _SPREADS:
            state = f"= {setting.value!r}" if setting else "is not set"
            yield finding(Code.INSTANCES_SPREAD, place=source.place(setting), state=state, value=MULTIPLIER.value)


@check(_TITLE)
def candidates(subject: LintSubject) -> Iterator[Finding]:
    """Placement must limit its candidates if flavors request many GPUs."""
    needed = [advice for advice in subject.advised if PLACEMENT in advice.option.services]
    sources = subject.serving(PLACEMENT)
    for source in sources if needed else ():
        missing = [advice for advice in needed if not _is_fulfilled(source.configuration.last(advice.option), advice)]
        if missing:
            yield finding(
                Code.CANDIDATES_UNLIMITED,
                place=source.label,
                options=", ".join(f"[{a.option.group}] {a.option.name}" for a in missing),
                lines=", ".join(f"[{a.option.group}] {a.option.name} = {a.value}" for a in missing),
            )
    if needed and not sources:
        yield finding(Code.PLACEMENT_NOT_CHECKED, place="placement.conf")


def _is_fulfilled(setting: Setting | None, advice: Advised) -> bool:
    """Whether an option has the advised value, or another limit of the operator."""
    if setting is None:
        return False
    limit = number(setting.value) if advice.option.kind == "number" else None
    return bool(setting.unknown) or advice.means(setting.value) or (limit is not None and limit > 0)
