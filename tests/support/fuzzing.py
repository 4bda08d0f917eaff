"""Cases of fuzzing: a reader gets damaged input in a child process with limits, and may only accept or refuse it.

A case is the reader's name, a seed and a number, so that it can be repeated. In the child, an audit hook refuses writes
outside a directory, processes and connections; memory and CPU time are limited.
"""

from __future__ import annotations

import copy
import functools
import importlib
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpustack.base.errors import GpustackError

SECONDS = 20
"""CPU time of a case; usual ones take milliseconds."""
WALL = 120
MEMORY = 1 << 30
MOST_WORDS = 100_000
WORDS: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**31, 2**63, 2**64, 10**400, 1.5, float("nan"), float("inf"), "", "\0", "\x1b[2J"),
    *("\u202e", "\ud800", "../../etc/passwd", "/dev/zero", "$(id)", "${a:-", "$a$a$a", "%s%n", "{port:>99999999}"),
    *("{{ 1 }}", "'", '"', "\\", "\n", "-", "--", "=", "a" * 5000, "[" * 60_000, "0" * 5000, "1e999", "0000:88:00.0"),
    *("ffff:ff:1f.7", "10de", [], {}, [[]], {"": ""}, ["x"] * 100, {"a": {"a": {"a": []}}}),
)
_WRITES = ("os.mkdir", "os.remove", "os.rename", "os.link", "os.symlink", "os.chmod", "os.truncate", "os.rmdir")
_TO_SECOND = ("os.rename", "os.link", "os.symlink")
_STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect")


@dataclass(frozen=True, kw_only=True)
class Reader:
    """What reads an input.

    :ivar honest: inputs that it accepts.
    :ivar read: reads an input; the directory is the only place for files.
    :ivar plant: the function, as ``module:name``, that gets a planted fault, if the reader refuses little.
    :ivar prepare: makes what all cases share, in their parent.
    """

    name: str
    honest: tuple[Any, ...]
    read: Callable[[Any, Path], object]
    prepare: Callable[[], object] | None = None
    plant: str = ""


def damaged(rng: random.Random, document: Any) -> Any:
    """A copy of a document with some values replaced, missing or repeated."""
    document = copy.deepcopy(document)
    if isinstance(document, dict) and not rng.randrange(4):
        return {key: value if rng.randrange(3) == 0 else rng.choice(WORDS) for key, value in document.items()}
    for _ in range(rng.randint(1, 4)):
        place, key = _place(rng, document)
        if place is None:
            return rng.choice(WORDS)
        change = rng.randrange(4)
        if change == 0:
            del place[key]
        elif change == 1 and isinstance(place, list):
            place.append(place[key])
        elif change == 1:
            place[str(rng.choice(WORDS))[:50]] = place[key]
        else:
            place[key] = rng.choice(WORDS)
    return document


def _place(rng: random.Random, document: Any) -> tuple[Any, Any]:
    """A container within a document, and one of its keys."""
    place, key = None, None
    inner = document
    while isinstance(inner, dict | list) and inner:
        place = inner
        key = rng.choice(list(inner)) if isinstance(inner, dict) else rng.randrange(len(inner))
        inner = inner[key]
        if not rng.randrange(4):
            break
    return place, key


def spoiled(rng: random.Random, text: bytes) -> bytes:
    """A text with some bytes changed, cut or repeated, or with strange words."""
    for _ in range(rng.randint(1, 6)):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.randint(0, 40))
        word = str(rng.choice(WORDS)).encode("utf-8", "surrogatepass")
        piece = rng.choice((b"", text[start:end] * 2, word, bytes([rng.randrange(256)]), b"\n"))
        text = text[:start] + piece + text[end:]
    return text


def made(rng: random.Random, reader: Reader) -> Any:
    """The damaged input of a case."""
    honest = rng.choice(reader.honest)
    if isinstance(honest, bytes):
        return spoiled(rng, honest)
    if isinstance(honest, str):
        return spoiled(rng, honest.encode()).decode("utf-8", "replace")
    return damaged(rng, honest)


def run(reader: Reader, seed: int, number: int, *, planted: bool = False) -> str:
    """Run a case in a child; return what went wrong, empty if nothing did.

    :param number: 0 for an undamaged input.
    :param planted: plant a fault: instead of each refusal, the reader raises an unforeseen error.
    """
    if reader.prepare:
        reader.prepare()
    directory = Path(tempfile.mkdtemp(prefix="gpustack-fuzz-"))
    rng = random.Random(f"{reader.name}:{seed}:{number}")  # noqa: S311
    output, error = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(output)
        _in_child(reader, rng, number, directory, error, planted)
    os.close(error)
    try:
        text = _answer(output)
        if text is None:
            os.kill(child, signal.SIGKILL)
            text = f"no end within {WALL} s"
        _, status = os.waitpid(child, 0)
    finally:
        os.close(output)
        shutil.rmtree(directory, ignore_errors=True)
    if os.WIFSIGNALED(status) and not text:
        text = f"ended by signal {os.WTERMSIG(status)}"
    return text


def _answer(output: int) -> str | None:
    end, text = time.monotonic() + WALL, b""
    while select.select([output], [], [], max(0.0, end - time.monotonic()))[0]:
        piece = os.read(output, 1 << 16)
        if not piece:
            return text.decode("utf-8", "replace")
        text += piece
    return None


def _in_child(
    reader: Reader, rng: random.Random, number: int, directory: Path, error: int, planted: bool
) -> None:  # pragma: no cover - in a child
    text = ""
    try:
        value = made(rng, reader) if number else copy.deepcopy(reader.honest[0])
        seen = _confined(directory)
        if planted:
            _plant(reader)
        try:
            reader.read(value, directory)
        except GpustackError as refusal:
            if number == 0:
                text = f"an undamaged input is refused: {refusal}"
            elif len(str(refusal)) > MOST_WORDS:
                text = f"a refusal of {len(str(refusal))} characters"
        text = text or "\n".join(seen)
    except BaseException:  # everything else is a fault
        text = traceback.format_exc()[-4000:] or "?"
    finally:
        os.write(error, text.encode("utf-8", "replace"))
        os._exit(0)


def _plant(reader: Reader) -> None:
    """Let each refusal, and the function that the reader names, raise an unforeseen error.

    Modules that are loaded already may have taken the function under a name of their own, so they get the fault too.
    """
    GpustackError.__init__ = _fault  # type: ignore[method-assign]
    module, _, name = reader.plant.partition(":")
    if module:
        *owners, last = name.split(".")
        owner = functools.reduce(getattr, owners, importlib.import_module(module))
        function = getattr(owner, last)
        for place in (owner, *list(sys.modules.values())):
            if vars(place).get(last) is function:
                setattr(place, last, _fault)


def _fault(*_arguments: object, **_options: object) -> None:
    raise RuntimeError("planted")


def _confined(directory: Path) -> list[str]:
    """Set the limits of a case, and return the list of what it must not have done."""
    seen: list[str] = []
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    memory = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    os.chdir(directory)
    os.environ.update(XDG_STATE_HOME=str(directory), HOME=str(directory))
    sys.dont_write_bytecode = True  # what a module writes when it is first imported is no act of a reader
    allowed = ("/dev/null", str(directory))
    with Path("/dev/null").open("r+b") as null:
        for descriptor in (0, 1):
            os.dup2(null.fileno(), descriptor)

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _STARTS:
            seen.append(f"{event} {arguments[0]!r}")
            raise PermissionError(f"fuzzing: {event}")
        if event not in (*_WRITES, "open") or (arguments and isinstance(arguments[0], int)):
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & 3):
            return
        path = os.fsdecode(arguments[event in _TO_SECOND])
        if not str(directory / path).startswith(allowed):
            seen.append(f"{event} {path!r}")
            raise PermissionError(f"fuzzing: {event} {path}")

    sys.addaudithook(refuse)
    return seen


def written(directory: Path, value: Any, name: str = "input") -> Path:
    """Write an input to a file."""
    content = value if isinstance(value, bytes) else json.dumps(value).encode("utf-8", "surrogatepass")
    path = directory / name
    path.write_bytes(content)
    return path


def by_name(readers: tuple[Reader, ...]) -> Mapping[str, Reader]:
    """The readers by their names."""
    return {reader.name: reader for reader in readers}
