"""Run readers on hostile input: they must refuse it with gpustack's errors, within limits of time and memory.

By default, the examples are the same in every run; ``GPUSTACK_FUZZ_EXAMPLES=5000`` generates more and random ones.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from gpustack.base.errors import GpustackError

_WISHED = int(os.environ.get("GPUSTACK_FUZZ_EXAMPLES", "0"))
SECONDS = 10.0
"""Limit of CPU time for one example of some kilobytes: hundreds of times the usual time."""
MOST_WORDS = 100_000
"""Limit of an error's length, in characters."""
MEBIBYTES = 1024
"""Limit of the process's growth in one example, in MiB."""


def examples(usual: int) -> settings:
    """The settings of one attack.

    :param usual: the number of examples in ``make test``.
    """
    return settings(
        max_examples=_WISHED or usual,
        derandomize=not _WISHED,
        phases=(Phase.explicit, Phase.generate, *((Phase.shrink,) if _WISHED else ())),
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


_writing = ("os.mkdir", "os.remove", "os.rename", "os.link", "os.symlink", "os.chmod", "os.truncate", "os.rmdir")
_started = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect")


class _Watch:
    """Records files opened for writing, started processes and connections of the interpreter, while enabled."""

    def __init__(self) -> None:
        self.allowed: tuple[str, ...] | None = None
        self.seen: list[str] = []
        sys.addaudithook(self._event)  # audit hooks can't be removed

    def _event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.allowed is None or (arguments and isinstance(arguments[0], int)):  # an already open file
            return
        writes = event in _writing or (event == "open" and isinstance(arguments[2], int) and arguments[2] & 3)
        if (writes and not str(arguments[0]).startswith(self.allowed)) or event in _started:
            self.seen.append(f"{event} {arguments[0]!r}")


_watch = _Watch()


@contextmanager
def attack(*writable: Path) -> Iterator[None]:
    """Run a reader on hostile input: errors of gpustack are expected, anything else is a failure.

    :param writable: the directories in which it may write.
    """
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    _watch.allowed, _watch.seen = ("/dev/null", *map(str, writable)), []
    refusal = ""
    bytecode = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # what a module writes when it is first imported is no act of a reader
    try:
        yield
    except GpustackError as error:
        refusal = str(error)
    finally:
        _watch.allowed = None
        sys.dont_write_bytecode = bytecode
    assert len(refusal) < MOST_WORDS
    assert not _watch.seen, _watch.seen
    assert time.process_time() - began < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEBIBYTES << 10


# --- inputs ---------------------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        "",
        "\0",
        "\x1b[2J",
        "\u202e",
        "../../etc/passwd",
        "/etc/passwd",
        "$(id)",
        "`id`",
        "${a:-",
        "$a$a$a",
        "%s%n",
        "{port:>99999999}",
        "{{ 1 }}",
        "'",
        '"',
        "\\",
        "\n",
        "\r\n",
        "-",
        "--",
        "=",
        "é",
        "a" * 5000,
        "[" * 3000,
        '{"a":' * 3000,
        "0" * 5000,
        "1e999",
        "NaN",
        "null",
        "0000:88:00.0",
        "ffff:ff:1f.7",
        "10de",
    ]
)
TEXTS = st.one_of(WORDS, st.text(max_size=40), st.lists(WORDS, max_size=6).map("".join))
NUMBERS = st.one_of(st.integers(), st.sampled_from([-1, 0, 2**31, 2**63, 2**64, -(2**63), 10**400]), st.floats())
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=12
)
BYTES = st.one_of(
    st.binary(max_size=200),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.sampled_from([b"[" * 100_000, b'{"a":' * 100_000, b"1" * 5000, b'"\\ud800"', b"[" + b"[]," * 100_000 + b"[]]"]),
)


@st.composite
def damaged(draw: st.DrawFn, document: Any, most: int = 3) -> Any:
    """A document with some values replaced, missing or repeated."""
    document = json.loads(json.dumps(document))
    for _ in range(draw(st.integers(1, most))):
        place = document
        while True:
            if isinstance(place, dict) and place:
                keys: list[Any] = sorted(place)
            elif isinstance(place, list) and place:
                keys = list(range(len(place)))
            else:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and place[key] and draw(st.integers(0, 5)):
                place = place[key]
                continue
            change = draw(st.integers(0, 3))
            if change == 0:
                place.pop(key)
            elif change == 1 and isinstance(place, list):
                place.append(place[key])
            else:
                place[key] = draw(JSON if change == 2 else TEXTS)
            break
    return document
