"""Evaluate ``/etc/default/grub`` and ``/etc/default/grub.d/*.cfg``, and record the file and line of each value.

``grub-mkconfig`` is a POSIX shell script that sources these files in this order, under ``set -e`` (Debian's and
Ubuntu's ``/usr/sbin/grub-mkconfig``). A normal menu entry gets ``$GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT``,
a recovery entry only ``$GRUB_CMDLINE_LINUX`` (``/etc/grub.d/10_linux``).

Assignments are evaluated as in a shell. Command substitutions, conditions and other commands are not run. They are
reported as :class:`Unevaluated`, and all values that depend on them are unknown.
"""

import functools
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from gpustack.linux import shell
from gpustack.linux.cmdline import Argument, CommandLine
from gpustack.linux.shell import Conditional, Literal, Opaque, Operator, Part, Token, Variable, Word

DEFAULTS = "/etc/default/grub"
DROP_INS = "/etc/default/grub.d"
TUNED = "/etc/tuned/bootcmdline"
"""The file from which ``/etc/grub.d/00_tuned`` sets GRUB's variable ``tuned_params``."""
_DROP_IN = re.compile(rf"{re.escape(DROP_INS)}/[^./][^/]*\.cfg")
LINUX = "GRUB_CMDLINE_LINUX"
LINUX_DEFAULT = "GRUB_CMDLINE_LINUX_DEFAULT"

# Longer than any kernel's command line (x86: 2048). The limit stops files that double a variable in each line.
_LONGEST = 1 << 16
_MOST = 1 << 20
"""Maximum number of characters and word parts in all values together."""
# Variables that the shell sets.
_SPECIAL = frozenset({"LINENO", "PPID", "RANDOM", "SECONDS", "OPTIND", "OPTARG", "PWD", "OLDPWD", "IFS", "_"})
_HARMLESS = frozenset({"[", "test", "echo", "true", ":"})
_OPENING = frozenset({"if", "for", "while", "until", "case", "{", "("})
_CLOSING = frozenset({"fi", "done", "esac", "}", ")"})
_INNER = frozenset({"then", "else", "elif"})
_DOS = r"a line that ends as DOS ends it: to the shell there is one more character (sed -i 's/\r$//' fixes it)"
_BOM = r"a byte order mark, with which update-grub fails (sed -i '1s/^\xef\xbb\xbf//' removes it from the file)"
_ENDS = frozenset({"\n", ";"})
_TUNED_PARAMS = re.compile(r"\$(?:tuned_params\b|\{tuned_params\})")


@dataclass(frozen=True, kw_only=True)
class Unevaluated:
    """A statement that was not evaluated.

    :ivar why: its kind, for messages.
    :ivar variables: the variables whose values are unknown because of it; None means all.
    """

    file: str
    line: int
    why: str
    variables: frozenset[str] | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.why}"


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of a value, with its file and line."""

    text: str
    file: str
    line: int


Value = tuple[Piece, ...] | Unevaluated


@dataclass(frozen=True, kw_only=True)
class Sourced:
    """A kernel argument, with its file and line."""

    argument: Argument
    file: str
    line: int

    @property
    def place(self) -> str:
        """``/etc/default/grub:6``; only the file if ``line`` is 0."""
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """The values of GRUB's variables.

    :ivar unevaluated: all statements that were not evaluated.
    :ivar otherwise: why variables that are not in ``values`` are unknown; None if they are unset.
    :ivar tuned: the value that GRUB substitutes for ``$tuned_params`` at boot; None if unknown.
    """

    values: Mapping[str, Value]
    unevaluated: tuple[Unevaluated, ...]
    otherwise: Unevaluated | None = None
    tuned: tuple[Piece, ...] | None = None

    def value(self, variable: str) -> Value:
        """The value of a variable, in pieces; empty if it is unset."""
        return self.values.get(variable, self.otherwise or ())

    def text(self, variable: str) -> str | None:
        """The value of a variable; None if unknown."""
        value = self.value(variable)
        return None if isinstance(value, Unevaluated) else "".join(piece.text for piece in value)

    def unknown(self, *variables: str) -> tuple[Unevaluated, ...]:
        """The reasons why values of ``variables`` are unknown; empty if all are known."""
        values = (self.value(variable) for variable in variables)
        return tuple(dict.fromkeys(value for value in values if isinstance(value, Unevaluated)))

    def arguments(self, *variables: str) -> tuple[Sourced, ...] | None:
        """The kernel arguments in ``variables``, in order, with file and line; None if a value is unknown."""
        pieces = self._joined(variables)
        return None if pieces is None else tuple(_sourced(pieces))

    def line(self, *variables: str) -> CommandLine | None:
        """The values of ``variables``, joined by spaces to a command line; None if a value is unknown."""
        pieces = self._joined(variables)
        return None if pieces is None else CommandLine(text="".join(piece.text for piece in pieces[1:]))

    def _joined(self, variables: Iterable[str]) -> list[Piece] | None:
        pieces: list[Piece] = []
        for variable in variables:
            value = self.value(variable)
            if isinstance(value, Unevaluated):
                return None
            pieces += [Piece(text=" ", file="", line=0), *self._at_boot(value)]
        return pieces

    def _at_boot(self, value: Iterable[Piece]) -> Iterator[Piece]:
        for piece in value:
            parts = [piece.text] if self.tuned is None else _TUNED_PARAMS.split(piece.text)
            for number, part in enumerate(parts):
                if number:
                    yield from self.tuned or ()
                yield replace(piece, text=part)


def _sourced(pieces: Sequence[Piece]) -> Iterator[Sourced]:
    ends = list(accumulate(len(piece.text) for piece in pieces))
    for argument in CommandLine(text="".join(piece.text for piece in pieces)).arguments:
        piece = pieces[bisect_right(ends, argument.offset)]
        yield Sourced(argument=argument, file=piece.file, line=piece.line)


def paths(files: Collection[str]) -> tuple[str, ...]:
    """The paths of ``files`` that ``grub-mkconfig`` sources, in its order."""
    return (*((DEFAULTS,) if DEFAULTS in files else ()), *sorted(filter(_DROP_IN.fullmatch, files)))


def read_defaults(files: Mapping[str, str], *, bash: bool = False) -> Defaults:
    """Evaluate GRUB's defaults.

    :param files: texts by absolute path; other files are ignored.
    :param bash: whether ``/bin/sh`` is bash, which supports ``+=``. With dash (Debian), ``+=`` makes ``update-grub``
        fail.
    """
    names = (*paths(files), *((TUNED,) if TUNED in files else ()))
    return _evaluated(tuple((path, files[path]) for path in names), bash)


@functools.lru_cache(maxsize=64)
def _evaluated(texts: tuple[tuple[str, str], ...], bash: bool) -> Defaults:
    """A plan evaluates the same files several times."""
    state = _State(bash=bash)
    files = dict(texts)
    for path in paths(files):
        if files[path].startswith("\ufeff") and not bash:  # no command has that name: set -e ends grub-mkconfig
            state.give_up(path, 1, _BOM, None)
            break
        state.run(path, files[path])
    unevaluated, tuned = tuple(state.unevaluated), _tuned(files.get(TUNED))
    return Defaults(values=state.values, unevaluated=unevaluated, otherwise=state.otherwise, tuned=tuned)


def _tuned(text: str | None) -> tuple[Piece, ...] | None:
    if text is None:
        return None
    state = _State(bash=False)
    state.run(TUNED, text)
    value = state.values.get("TUNED_BOOT_CMDLINE", state.otherwise or ())
    return None if isinstance(value, Unevaluated) else value


@dataclass(kw_only=True)
class _State:
    bash: bool
    values: dict[str, Value] = field(default_factory=dict)
    unevaluated: list[Unevaluated] = field(default_factory=list)
    otherwise: Unevaluated | None = None
    left: int = _MOST

    def run(self, path: str, text: str) -> None:
        tokens: list[Token] = []
        failure: shell.UnreadableError | None = None
        try:
            tokens.extend(shell.tokens(text))
        except shell.UnreadableError as error:
            failure = error
        for command in _commands(tokens):
            self._command(path, command)
        if failure is not None:
            self.give_up(path, failure.line, failure.why, None)

    def give_up(self, path: str, line: int, why: str, variables: frozenset[str] | None) -> None:
        reason = Unevaluated(file=path, line=line, why=why, variables=variables)
        self.unevaluated.append(reason)
        if variables is None:
            self.values.clear()
            self.otherwise = reason
        else:
            self.values.update(dict.fromkeys(variables, reason))

    def _command(self, path: str, command: Sequence[Token]) -> None:
        words = [token for token in command if isinstance(token, Word)]
        if len(words) != len(command) or (words and words[0].bare in _OPENING):
            self.give_up(path, command[0].line, "commands that depend on the running host", _assigned(command))
            return
        assignments = [(word.line, *parts) for word in words if (parts := word.assignment())]
        if len(assignments) == len(words):
            for assignment in assignments:
                self._assign(path, *assignment)
            return
        if (first := words[0].plain) == "export":
            self._export(path, words)
        elif first == "unset" and all(word.plain and not word.plain.startswith("-") for word in words[1:]):
            self.values.update({word.plain: () for word in words[1:] if word.plain})
        elif first in _HARMLESS - {"[", "test"} and all(
            not isinstance(part, Opaque) for word in words for part in word.parts
        ):
            self.give_up(path, words[0].line, f"the command {first}", frozenset())
        elif any((word.plain or "").endswith("\r") for word in words):
            self.give_up(path, words[0].line, _DOS, None)
        else:
            self.give_up(path, words[0].line, f"the command {first or 'in an expansion'}", None)

    def _export(self, path: str, words: Sequence[Word]) -> None:
        for word in words[1:]:
            if (assignment := word.assignment()) is not None:
                # Unlike a plain assignment, an argument of export is subject to field splitting and globbing.
                name, append, parts = assignment
                if all(isinstance(p, Opaque) or p.quoted or _no_pattern(p) for p in parts) and not append:
                    self._assign(path, word.line, name, append, parts)
                else:
                    self.give_up(path, word.line, "an unquoted expansion", frozenset({name}))
            elif word.plain is None or word.plain.startswith("-"):
                self.give_up(path, word.line, "export", None)

    def _assign(self, path: str, line: int, name: str, append: bool, parts: tuple[Part, ...]) -> None:
        if append and not self.bash:
            self.give_up(path, line, "+=, which sh does not have: update-grub fails here", None)
            return
        value = self._value(path, parts)
        before = self._lookup(path, line, name) if append else ()
        if not isinstance(before, Unevaluated):
            before = self._spent(path, line, before) or before
        if isinstance(before, Unevaluated):
            value = before
        elif not isinstance(value, Unevaluated):
            value = (*before, *value)
            if sum(len(piece.text) for piece in value) > _LONGEST:
                value = Unevaluated(file=path, line=line, why="a value of over 64 KiB")
            elif name in (LINUX, LINUX_DEFAULT) and any("\r" in piece.text for piece in value):
                value = Unevaluated(file=path, line=line, why=_DOS)
        if isinstance(value, Unevaluated):
            self.unevaluated.append(value)
        self.values[name] = value

    def _lookup(self, path: str, line: int, name: str) -> Value:
        if name in self.values and name not in _SPECIAL:
            return self.values[name]
        if self.otherwise is not None:
            return self.otherwise
        if name.startswith("GRUB_"):
            return ()
        return Unevaluated(file=path, line=line, why=f"${name}, which no file sets")

    def _value(self, path: str, parts: tuple[Part, ...]) -> Value:
        pieces: list[Piece] = []
        tilde = True
        for part in parts:
            value = self._part(path, part, tilde=tilde)
            if isinstance(value, Unevaluated):
                return value
            if spent := self._spent(path, part.line, value):
                return spent
            pieces += value
            tilde = isinstance(part, Literal) and not part.quoted and part.text.endswith(":")
        return tuple(piece for piece in pieces if piece.text)

    def _part(self, path: str, part: Part, *, tilde: bool) -> Value:
        if isinstance(part, Opaque):
            return Unevaluated(file=path, line=part.line, why=part.why)
        if isinstance(part, Variable):
            return self._lookup(path, part.line, part.name)
        if isinstance(part, Conditional):
            value = self._lookup(path, part.line, part.name)
            if isinstance(value, Unevaluated):
                return value
            if not value and part.name in self.values and ":" not in part.operator:
                return Unevaluated(file=path, line=part.line, why=f"whether ${part.name} is empty or unset")
            if part.operator.endswith("-"):
                return value or self._value(path, part.parts)
            return self._value(path, part.parts) if value else ()
        if not part.quoted and ((tilde and part.text.startswith("~")) or ":~" in part.text):
            return Unevaluated(file=path, line=part.line, why="a home directory")
        return (Piece(text=part.text, file=path, line=part.line),)

    def _spent(self, path: str, line: int, value: tuple[Piece, ...]) -> Unevaluated | None:
        """Subtract the size of a value from the total limit ``_MOST``; return a reason if it is exceeded."""
        self.left -= sum(len(piece.text) + 1 for piece in value)
        why = f"values of over {_MOST >> 20} MiB in all"
        return Unevaluated(file=path, line=line, why=why) if self.left < 0 else None


def _no_pattern(part: Part) -> bool:
    return isinstance(part, Literal) and not re.search(r"[*?\[]", part.text)


def _assigned(command: Sequence[Token]) -> frozenset[str] | None:
    """The variables that a compound command may set; None if unknown."""
    names: set[str] = set()
    expected = True  # whether the next word is the first of a command
    for token in command:
        if isinstance(token, Operator):
            if token.text in ("<", ">", ">>", "<&", ">&", "<>", ">|"):
                return None
            expected = token.text not in (")",)
            continue
        if any(isinstance(part, Opaque) for part in token.parts) and token.assignment() is None:
            return None
        if not expected:
            continue
        if (assignment := token.assignment()) is not None:
            names.add(assignment[0])
            continue
        bare = token.bare
        if bare in ("if", "{", "while", "until", "do") or bare in _INNER:
            continue
        if bare not in _HARMLESS and bare not in _CLOSING:
            return None
        expected = False
    return frozenset(names)


def _commands(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """Split tokens into complete commands; a compound command or an and-or list is one command."""
    command: list[Token] = []
    depth = 0
    first = True
    for position, token in enumerate(tokens):
        text = token.text if isinstance(token, Operator) else token.bare if first else None
        if text == "case":  # has unpaired brackets: treat the rest of the file as one command
            yield [*command, *tokens[position:]]
            return
        if text in _OPENING:
            depth += 1
        elif text in _CLOSING:
            depth = max(0, depth - 1)
        if isinstance(token, Operator) and token.text in _ENDS and not depth:
            dangling = command and isinstance(command[-1], Operator) and command[-1].text in ("&&", "||", "|")
            if not (dangling and token.text == "\n"):
                if command:
                    yield command
                command = []
                first = True
                continue
        else:
            command.append(token)
        first = isinstance(token, Operator) or text in _OPENING | _INNER | {"do", "!"}
        if isinstance(token, Word) and first is False and token.assignment() is not None:
            first = True  # a command may follow assignments
    if command:
        yield command
