"""What a release of Nova checks against the limits of GPUs: ``gpustack/data/enforcement.toml`` as objects."""

import functools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpustack.base.files import data_dir
from gpustack.base.findings import Code, Finding, finding
from gpustack.nova_options import releases
from gpustack.nova_options.releases import Release
from gpustack.spec.model import Placement
from gpustack.spec.quotas import CountedBy

Effect = Literal["enforced", "none"]
OPERATIONS = ("boot", "resize", "unshelve")
FIRST = 25
"""Yoga, the first release with unified limits."""
_NOT_THERE = "not checked: this release has no unified limits"


@dataclass(frozen=True, kw_only=True)
class Check:
    """What Nova checks in one operation.

    :ivar placement: the stages of PCI in Placement to which it applies; empty for all.
    :ivar test: the test that proves it.
    """

    count: CountedBy
    operation: str
    effect: Effect
    text: str
    since: int = 0
    until: int | None = None
    placement: tuple[Placement, ...] = ()
    test: str = ""
    source: str = ""

    def applies(self, release: Release, placement: Placement) -> bool:
        """Whether it is about a release and a stage of PCI in Placement."""
        in_time = self.since <= release.major and (self.until is None or release.major <= self.until)
        return in_time and (not self.placement or placement in self.placement)

    def to_dict(self) -> dict[str, str]:
        return {"operation": self.operation, "effect": self.effect, "text": self.text}


@functools.cache
def checks() -> tuple[Check, ...]:
    """All entries; of those that apply, the first counts."""
    data = tomllib.loads((data_dir("") / "enforcement.toml").read_text(encoding="utf-8"))
    return tuple(Check(**{**entry, "placement": tuple(entry.get("placement", ()))}) for entry in data["check"])


def enforced(count: CountedBy, release: Release, placement: Placement) -> tuple[Check, ...]:
    """What Nova checks at boot, resize and unshelve."""
    return tuple(_check(count, operation, release, placement) for operation in OPERATIONS)


def _check(count: CountedBy, operation: str, release: Release, placement: Placement) -> Check:
    for check in checks():
        if (check.count, check.operation) == (count, operation) and check.applies(release, placement):
            return check
    return Check(count=count, operation=operation, effect="none", text=_NOT_THERE)


def gaps(count: CountedBy, release: Release, placement: Placement) -> Iterator[Finding]:
    """Findings about boots and resizes that Nova does not check."""
    for check in enforced(count, release, placement):
        if check.effect == "none" and check.operation != "unshelve":
            yield finding(
                Code.QUOTA_NOT_ENFORCED,
                place=f"Nova {release}",
                operation=check.operation,
                effect=check.text,
                since=releases.first_with(FIRST),
            )
