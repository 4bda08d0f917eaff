"""The reasons why a host takes no new instances: a set, kept in Nova, and the only writer of nova-compute's state.

The set is in the service's ``disabled_reason`` (255 characters), so that every operator and machine sees the same:
``gpustack: maintenance (kernel arguments); GPU 81:00.0, 82:00.0 (ECC errors) | text of others``. Texts of gpustack's
reasons are shortened if the set does not fit; addresses, and the text of others, never. The host opens when the last
reason ends.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from gpustack.base.by_key import by_key
from gpustack.base.errors import ApplyError, CloudError, PlanError, UsageError
from gpustack.cloud import Connection, compute
from gpustack.cloud.compute import Service
from gpustack.cloud.microversions import UUIDS
from gpustack.cloud.session import NOBODY, may, request

MAINTENANCE = "maintenance"
UNSTATED = "disabled without a reason"
"""The text for somebody who disabled a service and gave no reason."""
_LONGEST = 255
_LIMITS = (_LONGEST, 120, 60, 40, 25, 12, 0)
"""The lengths to which texts are shortened, until the set fits."""
_ATTEMPTS = 5
_PREFIX, _OTHERS, _BAR = "gpustack: ", "others", " | "
_ADDRESS = r"(?:[0-9a-f]{1,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_SEGMENT = re.compile(rf"({MAINTENANCE}|GPU {_ADDRESS}(?:, {_ADDRESS})*)(?: \(([^()|;]+)\))?\Z")
_KEY = re.compile(rf"{MAINTENANCE}\Z|GPU [0-9a-f]{{4,8}}:[0-9a-f]{{2}}:[0-9a-f]{{2}}\.[0-7]\Z")
_RELEASED = (
    re.compile(r"gpustack: (?P<text>\S+ (?:is rebooted|has failed): .*) \(since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\)\Z"),
    re.compile(rf"GPU (?P<address>{_ADDRESS}) out of service: (?P<text>.*)\Z"),
)
"""The reasons of 0.1.0: of a reboot, and of a GPU."""
_RESERVED = str.maketrans("();|", "[],/")


def gpu_reason(address: str) -> str:
    """The reason that a GPU is out of service.

    :param address: with its domain: ``0000:81:00.0``.
    """
    return f"GPU {address}"


def is_reason(text: str) -> bool:
    """Whether gpustack has such a reason."""
    return bool(_KEY.match(text))


@dataclass(frozen=True, kw_only=True)
class Reasons:
    """The reasons why a host is closed; false if it is open.

    :ivar own: the texts of gpustack's reasons, by reason: :data:`MAINTENANCE`, or that of :func:`gpu_reason`.
    :ivar other: the text of others, verbatim.
    """

    own: Mapping[str, str] = field(default_factory=dict)
    other: str = ""

    def __bool__(self) -> bool:
        return bool(self.own or self.other)

    def plus(self, reason: str, text: str) -> Self:
        """The set with a reason; it replaces the text of a present one."""
        return type(self)(own={**self.own, reason: _clean(text)}, other=self.other)

    def minus(self, reason: str) -> Self:
        """The set without a reason."""
        return type(self)(own={name: text for name, text in self.own.items() if name != reason}, other=self.other)

    def __str__(self) -> str:
        texts = [
            f"{name}{'' if name == MAINTENANCE else ' out of service'}{f' ({text})' if text else ''}"
            for name, text in _sorted(self.own)
        ]
        other = self.other if self.other == UNSTATED else f"reason of others: {self.other}"
        return "; ".join([*texts, other] if self.other else texts)

    def to_text(self) -> str:
        """The set as Nova stores it.

        :raises PlanError: if it does not fit.
        """
        if not self.own and parse(self.other) == self:
            return self.other
        for limit in _LIMITS:
            text = self._text(limit)
            if len(text) <= _LONGEST:
                return text
        raise PlanError(
            f"the reasons for the closed host do not fit in Nova's {_LONGEST} characters: {text}",
            remedy="shorten the text after the bar: openstack compute service set --disable --disable-reason TEXT HOST"
            " nova-compute",
        )

    def _text(self, limit: int) -> str:
        groups = by_key(((name == MAINTENANCE, _cut(text, limit)), name) for name, text in _sorted(self.own))
        segments = [
            (MAINTENANCE if maintenance else "GPU " + ", ".join(map(_short, names))) + (f" ({text})" if text else "")
            for (maintenance, text), names in groups.items()
        ]
        return _PREFIX + "; ".join(segments or [_OTHERS]) + (f"{_BAR}{self.other}" if self.other else "")


def parse(text: str) -> Reasons:
    """Read the reasons of a closed host; what gpustack did not write is text of others, and stays verbatim."""
    for pattern in _RELEASED:
        if match := pattern.match(text):
            address = match.groupdict().get("address")
            return Reasons(own={gpu_reason(_long(address)) if address else MAINTENANCE: _clean(match["text"])})
    if not text.startswith(_PREFIX):
        return Reasons(other=text)
    ours, bar, other = text.removeprefix(_PREFIX).partition(_BAR)
    own: dict[str, str] = {}
    foreign = []
    for segment in ours.split("; "):
        if match := _SEGMENT.match(segment):
            own |= {name: own.get(name) or match[2] or "" for name in _names(match[1])}
        elif segment != _OTHERS:
            foreign.append(segment)
    if not own and (foreign or not other):
        return Reasons(other=text)
    return Reasons(own=own, other="; ".join(foreign) + (bar if foreign else "") + other)


def _names(text: str) -> list[str]:
    addresses = text.removeprefix("GPU ").split(", ")
    return [text] if text == MAINTENANCE else [gpu_reason(_long(address)) for address in addresses]


def _sorted(own: Mapping[str, str]) -> list[tuple[str, str]]:
    return sorted(own.items(), key=lambda entry: (entry[0] != MAINTENANCE, entry))


def _long(address: str) -> str:
    domain, bus, slot = f"0:{address}".rsplit(":", 2)
    return f"{int(domain.removeprefix('0:'), 16):04x}:{bus}:{slot}"


def _short(reason: str) -> str:
    domain, _, rest = reason.removeprefix("GPU ").partition(":")
    number = int(domain, 16)
    return f"{number:x}:{rest}" if number else rest


def _clean(text: str) -> str:
    """A text in one line, without characters of the form, and without those that Nova's MySQL can't store."""
    shown = "".join(letter if letter.isprintable() and ord(letter) < 0x10000 else " " for letter in text)
    return " ".join(shown.translate(_RESERVED).split())


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3].rstrip()}..." if limit else ""


# --- in the cloud ---------------------------------------------------------------------------------------------------


def reasons_of(service: Service) -> Reasons:
    """Why a service is disabled; none if it is enabled."""
    return Reasons() if service.enabled else parse(service.reason or UNSTATED)


def service_of(cloud: Connection, host: str) -> Service:
    """The nova-compute of a host.

    :raises UsageError: if there is not exactly one.
    :raises CloudError: if Nova or the cell of the host does not answer, or Nova refuses.
    """
    services = compute.services(cloud, host)
    if len(services) != 1:
        step = "delete that of the wrong cell (gpustack explain GPU718)" if services else "name the host as Nova does"
        what = f"Nova has {len(services) or 'no'} nova-compute service{'s'[: len(services) > 1]} on {host}"
        raise UsageError(what, remedy=f"{step}: openstack compute service list")
    if not services[0].answers:
        raise CloudError(f"the cell of {host} does not answer, so its nova-compute can't be changed", where=host)
    return services[0]


def set_reason(cloud: Connection, host: str, reason: str, text: str | None) -> None:
    """Add a reason, or end it: the host opens if it was the last one.

    Reads, writes, reads again, and repeats if somebody wrote meanwhile: Nova does not compare.

    :param text: why; None to end the reason.
    :raises PlanError: if the reasons do not fit; nothing was written.
    :raises CloudError: if Nova cannot be reached or refuses.
    :raises ApplyError: if others change the service all the time.
    """
    service = service_of(cloud, host)
    for attempt in range(_ATTEMPTS):
        before = reasons_of(service)
        if (reason in before.own) == (text is not None) and (text is None or attempt):
            return
        after = before.minus(reason) if text is None else before.plus(reason, text)
        body = {"status": "disabled", "disabled_reason": after.to_text()} if after else {"status": "enabled"}
        doing = f"{'disable' if after else 'enable'} nova-compute of {host}"
        request(cloud, "compute", "PUT", f"/os-services/{service.id}", doing, version=UUIDS, body=body)
        service = service_of(cloud, host)
    remedy = "look at it with `openstack compute service list --long`, then run the command again"
    raise ApplyError(f"somebody else changes nova-compute of {host} all the time", where=host, remedy=remedy)


def may_switch(cloud: Connection) -> bool:
    """Whether the user may change services.

    :raises CloudError: if Nova cannot be reached, or refuses for another reason.
    """
    return may(cloud, "compute", f"/os-services/{NOBODY}", "change a nova-compute", {"status": "enabled"}, UUIDS)
