"""Tokenize POSIX shell files such as ``/etc/default/grub``, without running them.

Only the lexical part is implemented (POSIX.1-2017, Shell Command Language, 2.2 "Quoting", 2.3 "Token Recognition").
Supported expansions are ``$NAME``, ``${NAME}``, ``${NAME:-word}`` and ``${NAME:+word}``. The values of all other
expansions are unknown (:class:`Opaque`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=", re.ASCII)
_DEEPEST = 16
"""Maximum depth of nested expansions."""
_OPERATORS = ("&&", "||", ";;", "<<", ">>", "<&", ">&", "<>", ">|", "\n", ";", "&", "|", "(", ")", "<", ">")


class UnreadableError(ValueError):
    """The file can't be parsed from ``line`` on."""

    def __init__(self, why: str, line: int) -> None:
        super().__init__(why)
        self.why = why
        self.line = line


@dataclass(frozen=True, kw_only=True)
class Literal:
    """Literal text; ``quoted`` if it is in quotes or after a backslash."""

    text: str
    line: int
    quoted: bool


@dataclass(frozen=True, kw_only=True)
class Variable:
    """``$NAME`` or ``${NAME}``."""

    name: str
    line: int
    quoted: bool


@dataclass(frozen=True, kw_only=True)
class Opaque:
    """An expansion that is not evaluated; ``why`` names its kind."""

    why: str
    line: int


@dataclass(frozen=True, kw_only=True)
class Conditional:
    """``${NAME-word}``, ``${NAME+word}``, ``${NAME:-word}`` or ``${NAME:+word}`` (POSIX.1-2017, 2.6.2).

    :ivar operator: ``-`` or ``+``, after a colon if an empty variable is treated as unset.
    :ivar parts: the word, without opaque parts.
    """

    name: str
    operator: str
    parts: tuple[Literal | Variable | Conditional, ...]
    line: int
    quoted: bool


Part = Literal | Variable | Conditional | Opaque


@dataclass(frozen=True, kw_only=True)
class Word:
    """One word of a command."""

    parts: tuple[Part, ...]
    line: int

    @property
    def bare(self) -> str | None:
        """The text of a word without quotes and expansions, else None. Only such words can be reserved words."""
        return self.plain if all(isinstance(p, Literal) and not p.quoted for p in self.parts) else None

    @property
    def plain(self) -> str | None:
        """The text of a word without expansions, quotes removed, else None."""
        if all(isinstance(p, Literal) for p in self.parts):
            return "".join(p.text for p in self.parts if isinstance(p, Literal))
        return None

    def assignment(self) -> tuple[str, bool, tuple[Part, ...]] | None:
        """Name, whether the operator is ``+=``, and the parts of the value; None if the word is no assignment."""
        head = ""
        for part in self.parts:
            if not isinstance(part, Literal) or part.quoted:
                break
            head += part.text
        if (match := _ASSIGNMENT.match(head)) is None:
            return None
        return match[1], match[2] == "+", tuple(_without_head(self.parts, match.end()))


def _without_head(parts: tuple[Part, ...], length: int) -> Iterator[Part]:
    for part in parts:
        if length and isinstance(part, Literal):
            tail = part.text[length:]
            length = max(0, length - len(part.text))
            if tail:
                yield Literal(text=tail, line=part.line, quoted=part.quoted)
        else:
            yield part


@dataclass(frozen=True, kw_only=True)
class Operator:
    """A control or redirection operator; a newline is one."""

    text: str
    line: int


Token = Word | Operator


def tokens(text: str) -> Iterator[Token]:
    """The tokens of a shell file.

    :raises UnreadableError: at syntax errors and unsupported syntax; the tokens before them are returned.
    """
    return _Reader(text).tokens()


class _Parts:
    """Collects the parts of one word; adjacent literal text is joined to one part."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._texts: list[str] = []
        self._line = 0
        self._quoted = False

    def add(self, text: str, line: int, *, quoted: bool) -> None:
        """Add literal text."""
        if (line, quoted) != (self._line, self._quoted):
            self._join()
        self._texts.append(text)
        self._line, self._quoted = line, quoted

    def append(self, part: Part) -> None:
        """Add an expansion."""
        self._join()
        self._parts.append(part)

    def finished(self) -> tuple[Part, ...]:
        """All parts."""
        self._join()
        return tuple(self._parts)

    def _join(self) -> None:
        if self._texts:
            self._parts.append(Literal(text="".join(self._texts), line=self._line, quoted=self._quoted))
            self._texts = []


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.line = 1
        self._depth = 0

    def _peek(self) -> str:
        """The next character after line continuations, not consumed; empty at the end."""
        while self.text.startswith("\\\n", self.position):
            self.position += 2
            self.line += 1
        return self.text[self.position : self.position + 1]

    def _take(self) -> str:
        """Consume and return the next character; empty at the end."""
        character = self.text[self.position : self.position + 1]
        self.position += 1
        if character == "\n":
            self.line += 1
        return character

    def tokens(self) -> Iterator[Token]:
        if "\0" in self.text:
            raise UnreadableError("a NUL byte", 1)
        while character := self._peek():
            if character in " \t":
                self._take()
            elif character == "#":
                while self.position < len(self.text) and self.text[self.position] != "\n":
                    self.position += 1
            elif operator := self._operator():
                yield operator
            else:
                yield self._word()

    def _operator(self) -> Operator | None:
        line = self.line
        if self._peek() not in "\n;&|()<>":
            return None
        text = self._take()
        if (second := self._peek()) and text + second in _OPERATORS:
            text += self._take()
        if text == "<<":
            raise UnreadableError("a here-document", line)
        return Operator(text=text, line=line)

    def _word(self) -> Word:
        line = self.line
        parts = _Parts()
        while (character := self._peek()) and character not in " \t\n;&|()<>":
            if character == "'":
                self._single(parts)
            elif character == '"':
                self._double(parts)
            elif character == "\\":
                self._take()
                start = self.line
                # A backslash at the end of the file is literal.
                parts.add(self._take() or "\\", start, quoted=True)
            elif character in "$`":
                self._expansion(parts, quoted=False)
            else:
                start = self.line
                parts.add(self._take(), start, quoted=False)
        return Word(parts=parts.finished(), line=line)

    def _single(self, parts: _Parts) -> None:
        start = self.line
        self._take()
        parts.add("", self.line, quoted=True)  # '' is an empty word
        if (end := self.text.find("'", self.position)) < 0:
            raise UnreadableError("a single quote that is never closed", start)
        for piece in self.text[self.position : end].splitlines(keepends=True):
            parts.add(piece, self.line, quoted=True)
            self.line += piece.count("\n")
        self.position = end + 1

    def _double(self, parts: _Parts) -> None:
        start = self.line
        self._take()
        parts.add("", self.line, quoted=True)
        while (character := self._peek()) != '"':
            if not character:
                raise UnreadableError("a double quote that is never closed", start)
            if character in "$`":
                self._expansion(parts, quoted=True)
                continue
            line = self.line
            self._take()
            if character == "\\" and self.text.startswith(("$", "`", '"', "\\"), self.position):
                character = self._take()
            parts.add(character, line, quoted=True)
        self._take()

    def _expansion(self, parts: _Parts, *, quoted: bool) -> None:
        line = self.line
        if self._take() == "`":
            self._backquoted(line)
            parts.append(Opaque(why="a command substitution", line=line))
            return
        character = self._peek()
        if _NAME.match(character):
            parts.append(Variable(name=self._name(), line=line, quoted=quoted))
        elif character == "{":
            self._take()
            name = self._name()
            if name and self._peek() == "}":
                self._take()
                parts.append(Variable(name=name, line=line, quoted=quoted))
            elif name and (conditional := self._conditional(name, line, quoted=quoted)):
                parts.append(conditional)
            elif name and self.text.startswith(("=", ":="), self.position):
                raise UnreadableError("an expansion that sets a variable", line)
            else:
                self._nested("{", "}", line)
                parts.append(Opaque(why="a parameter expansion with an operator", line=line))
        elif character == "(":
            self._take()
            self._nested("(", ")", line)
            parts.append(Opaque(why="a command or arithmetic substitution", line=line))
        elif character and (character in "@*#?-$!0123456789" or (character in "'\"" and not quoted)):
            if character not in "'\"":
                self._take()
            parts.append(Opaque(why="a special parameter", line=line))
        else:
            parts.add("$", line, quoted=True)

    def _conditional(self, name: str, line: int, *, quoted: bool) -> Conditional | None:
        """The rest of ``${NAME:+word}``; None, with nothing consumed, for other expansions and those with quotes."""
        start = self.position, self.line
        operator = ":" if self._peek() == ":" else ""
        if operator:
            self._take()
        operator += self._peek()
        if operator in ("-", "+", ":-", ":+"):
            self._take()
            collected = _Parts()
            self._depth += 1
            if self._depth > _DEEPEST:
                raise UnreadableError("expansions nested too deeply", line)
            while (character := self._peek()) and character not in "}'\"\\`":
                if character == "$":
                    self._expansion(collected, quoted=quoted)
                else:
                    first_line = self.line
                    collected.add(self._take(), first_line, quoted=quoted)
            self._depth -= 1
            parts = collected.finished()
            known = tuple(part for part in parts if not isinstance(part, Opaque))
            if character == "}" and len(known) == len(parts):
                self._take()
                return Conditional(name=name, operator=operator, parts=known, line=line, quoted=quoted)
        self.position, self.line = start
        return None

    def _name(self) -> str:
        characters: list[str] = []
        while (character := self._peek()) and (_NAME.match(character) or (characters and character in "0123456789")):
            characters.append(self._take())
        return "".join(characters)

    def _backquoted(self, start: int) -> None:
        while character := self._take():
            if character == "\\":
                self._take()
            elif character == "`":
                return
        raise UnreadableError("a back quote that is never closed", start)

    def _nested(self, opening: str, closing: str, start: int) -> None:
        """Skip to the end of ``$(…)`` or ``${…}``; raise if the text could contain an unpaired bracket."""
        begin = self.position
        depth = 1
        while character := self._take():
            if character == "\\":
                self._take()
            elif character == "'":
                if opening == "{":
                    raise UnreadableError("quotes inside of an expansion", start)
                while (inner := self._take()) and inner != "'":
                    pass
            elif character == '"':
                while (inner := self._take()) and inner != '"':
                    if inner == "\\":
                        self._take()
                    elif inner in "$`":
                        raise UnreadableError("nested expansions inside of quotes", start)
            elif character == "`":
                self._backquoted(start)
            elif character == opening:
                depth += 1
            elif character == closing:
                depth -= 1
                if not depth:
                    inside = self.text[begin : self.position]
                    if opening == "(" and re.search(r"\bcase\b|#|<<", inside):
                        raise UnreadableError("a command substitution too intricate to skip", start)
                    return
        raise UnreadableError("an expansion that is never closed", start)
