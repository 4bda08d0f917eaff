"""Equal hosts are decided once: what differs between servers of one kind is replaced before, and restored afterwards.

Servers of one kind differ in their names, serial numbers, UUIDs, machine ids, times of files and a few MiB of memory.
A *twin* is a host of a kind with stand-ins for all of these. Each stand-in contains a random number of this process,
so the facts of no host can contain one; times keep their order. The key of a kind is a digest of the complete twin: a
host takes part in the decision about another only if it differs in nothing else.
"""

import functools
import hashlib
import itertools
import json
import re
import secrets
import string
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

from pydantic import BaseModel

from gpustack.base.errors import GpustackError
from gpustack.hosts.facts.model import Function, Host

T = TypeVar("T")
MOST_KINDS = 512
"""Maximum number of kinds that are remembered, the latest ones."""
_NUMBER = str(50_000_000 + secrets.randbelow(40_000_000))  # a part of an identifier, and of a number of seconds
_SECRET = secrets.token_hex(6)
TWIN = f"h{_NUMBER}{_SECRET}"
"""The name of each twin."""
_UUID = f"{_NUMBER}-{_SECRET[:4]}-{_SECRET[4:8]}-{_SECRET[8:]}-"
_SHAPE = bytes(
    ord("h" if chr(code) in string.hexdigits.lower() else "z" if chr(code) in string.ascii_letters else chr(code))
    for code in range(256)
)
"""Hexadecimal digits as ``h``, other letters as ``z``: re finds an identifier without trying it at each place."""
_IDENTIFIER = re.compile(rb"hhhhhhhh(?<![hz]hhhhhhhh)(?:-hhhh-hhhh-hhhh-hhhhhhhhhhhh|h{24})(?![hz])")
_STAND_IN = re.compile(rf"{TWIN}|{_UUID}[0-9a-f]{{12}}|{_NUMBER}{_SECRET}[0-9a-f]{{12}}|{_NUMBER}[0-9]{{2}}")
_TIME = re.compile(r'"(booted_at|config_mtime|mtime_ns|initramfs_mtime_ns)":([1-9][0-9]*)(?=[,}])')
_MOST_TIMES = 100
# No decision of this kind depends on these; tests/unit/hosts/facts/test_twins.py changes each field.
_IGNORED: Any = {
    **dict.fromkeys(("hostname", "pci", "collected_at", "memory_mib"), True),
    "kernel": {"log", "log_dropped", "log_since"},
    "numa_nodes": {"__all__": {"memory_mib", "huge_pages"}},
}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What a host has in common with others.

    :ivar key: the digest of its twin.
    :ivar rest: the twin's facts as JSON, without functions.
    :ivar own: the host's own texts, by their stand-ins.
    """

    key: bytes
    rest: str
    own: Mapping[str, str]


_twins: OrderedDict[bytes, Host | None] = OrderedDict()
"""The twin of each kind, the latest last; None for a kind of which only one host is known."""


def decided(host: Host, about: Hashable, decide: Callable[[Host], T]) -> T:
    """Decide about a host, once for all hosts of its kind.

    :param about: the decision, and all that it depends on beside the host.
    :param decide: a pure function of the host, which uses no memory of NUMA nodes, log, or counters of errors.
    """
    kind = None if host.hostname == TWIN else kind_of(host)
    twin = _twin(host, kind) if kind is not None else None
    if kind is None or twin is None:
        return decide(host)
    if about not in twin.decisions:
        try:
            twin.decisions[about] = _Decision(twin, decide(twin))
        except GpustackError:
            return decide(host)  # the error names the host itself
    result: T = twin.decisions[about].about(host, kind.own)
    return result


def has_identifier(text: str) -> bool:
    """Whether a text contains a UUID or a machine id, for which twins have stand-ins."""
    return _IDENTIFIER.search(text.encode().translate(_SHAPE)) is not None


def kind_of(host: Host) -> Kind | None:
    """The kind of a host, from its validated facts; None if its times are too many, or if it has mediated devices.

    No two hosts have a mediated device with the same UUID.
    """
    known = host.decisions.get(Kind)
    if known is None or known[0] is not host:  # a copy has the decisions about its original
        known = host.decisions[Kind] = (host, _kind(host))
    kind: Kind | None = known[1]
    return kind


def _kind(host: Host) -> Kind | None:
    raw = host.model_dump_json(exclude=_IGNORED).encode()
    places = [0, *(place for match in _IDENTIFIER.finditer(raw.translate(_SHAPE)) for place in match.span()), len(raw)]
    texts = [raw[start:end].decode() for start, end in itertools.pairwise(places)]
    found = texts[1::2]  # each second text is an identifier
    stand_ins = {
        own: f"{_UUID if '-' in own else _NUMBER + _SECRET}{place:012x}" for place, own in enumerate(sorted(set(found)))
    }
    texts[1::2] = [stand_ins[own] for own in found]
    rest = "".join(texts)
    times = sorted({int(time) * (10**9 if key == "booted_at" else 1) for key, time in _TIME.findall(rest)})
    if len(times) > _MOST_TIMES or any(function.mediated_devices for function in host.pci):
        return None
    moments = {time: f"{_NUMBER}{place:02}" for place, time in enumerate(times)}

    def moment(match: re.Match[str]) -> str:
        is_boot = match[1] == "booted_at"
        seconds = moments[int(match[2]) * (10**9 if is_boot else 1)]
        return f'"{match[1]}":{seconds}{"" if is_boot else "0" * 9}'

    rest = _TIME.sub(moment, rest)
    if (memory := _memory_that_matters(host)) is not None:
        rest = f'{rest[:-1]},"memory_mib":{memory}}}'
    digest = hashlib.blake2b(rest.encode(), digest_size=32)
    for function in host.pci:
        digest.update(function.digest)
        if function.serial is not None:
            stand_ins.setdefault(function.serial, f"{_UUID}{len(stand_ins):012x}")
            digest.update(stand_ins[function.serial].encode())
    own = {stand_in: text for text, stand_in in stand_ins.items()}
    own |= {moments[booted * 10**9]: str(booted) for booted in (host.kernel.booted_at,) if booted and booted > 0}
    return Kind(key=digest.digest(), rest=rest, own={**own, TWIN: host.hostname})


def _memory_that_matters(host: Host) -> int | None:
    """The amount of memory, if it is too much for the processor together with the windows of all functions."""
    bits, memory = host.cpu.physical_address_bits, host.memory_mib
    if bits is None or not 0 < bits <= 64:
        return None
    windows = sum(function.windows for function in host.pci)
    return (memory or 0) if windows + ((memory or 0) << 20) > 1 << bits else None


def _twin(host: Host, kind: Kind) -> Host | None:
    """The twin of a kind; None for its first host: a twin for one host would be work without a use."""
    is_known, twin = kind.key in _twins, _twins.pop(kind.key, None)
    if is_known and twin is None:
        serials = {own: stand_in for stand_in, own in kind.own.items()}
        pci = [f if f.serial is None else f.model_copy(update={"serial": serials[f.serial]}) for f in host.pci]
        twin = Host.model_validate({**json.loads(kind.rest), "hostname": TWIN, "pci": pci})
    _twins[kind.key] = twin
    if len(_twins) > MOST_KINDS:
        _twins.popitem(last=False)
    return twin


class _Own:
    """What a host has of its own: its facts, its functions and its texts, in place of its twin's.

    :ivar restored: the parts of one decision that are restored, by the id of the twin's part.
    """

    def __init__(self, host: Host, own: Mapping[str, str]) -> None:
        self.host, self.restored = host, dict[int, Any]()
        self._own = own

    def function(self, *, index: int) -> Function:
        return self.host.pci[index]

    def text(self, match: re.Match[str]) -> str:
        return self._own.get(match[0], match[0])


_Restore = Callable[[_Own], Any]


class _Decision:
    """The decision about a twin. Only its parts that have something of the twin are made for each host."""

    def __init__(self, twin: Host, value: Any) -> None:  # noqa: ANN401 - anything that a decision consists of
        self._value = value
        self._known: dict[int, _Restore | None] = {id(twin): lambda own: own.host}
        self._known |= {id(function): functools.partial(_Own.function, index=i) for i, function in enumerate(twin.pci)}
        self._restore = self._of(value)
        self._known.clear()

    def about(self, host: Host, own: Mapping[str, str]) -> Any:  # noqa: ANN401
        """The decision about a host."""
        return self._value if self._restore is None else self._restore(_Own(host, own))

    def _of(self, value: Any) -> _Restore | None:  # noqa: ANN401
        """Makes a part for a host; None if the part has nothing of the twin."""
        kind = type(value)
        if kind is str:
            return (lambda own: _STAND_IN.sub(own.text, value)) if _NUMBER in value else None
        if value is None or kind in (int, bool):
            return None
        if id(value) not in self._known:
            made = self._compound(value, kind)
            self._known[id(value)] = made and _once(id(value), made)
        return self._known[id(value)]

    def _compound(self, value: Any, kind: type) -> _Restore | None:  # noqa: ANN401
        if kind in (tuple, list, frozenset, set):
            items = [(item, self._of(item)) for item in value]
            restores = any(restore for _, restore in items)
            return (lambda own: kind([r(own) if r else item for item, r in items])) if restores else None
        if kind is dict:
            pairs = [(key, self._of(key), item, self._of(item)) for key, item in value.items()]
            made = lambda own: {k(own) if k else key: i(own) if i else item for key, k, item, i in pairs}  # noqa: E731
            return made if any(of_key or of_item for _, of_key, _, of_item in pairs) else None
        before: dict[str, Any] = {}
        if is_dataclass(kind):
            before = {field.name: getattr(value, field.name) for field in fields(value)}
        elif isinstance(value, BaseModel):
            before = {name: item for name, item in value.__dict__.items() if type(item) is str}
        changed = [(name, restore) for name, item in before.items() if (restore := self._of(item))]
        if isinstance(value, BaseModel):
            return (lambda own: value.model_copy(update={n: r(own) for n, r in changed})) if changed else None
        return functools.partial(_remade, kind, before, changed) if changed else None


def _remade(kind: type, before: Mapping[str, Any], changed: Iterable[tuple[str, _Restore]], own: _Own) -> Any:  # noqa: ANN401
    """A dataclass of these fields, as :func:`copy.copy` makes it: that of a frozen one sets each field apart."""
    made: Any = object.__new__(kind)
    values = made.__dict__
    values.update(before)
    for name, restore in changed:
        values[name] = restore(own)
    return made


def _once(part: int, make: _Restore) -> _Restore:
    """The same object wherever a decision has the same part."""

    def restore(own: _Own) -> Any:  # noqa: ANN401
        if part not in own.restored:
            own.restored[part] = make(own)
        return own.restored[part]

    return restore
