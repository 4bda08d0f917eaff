"""The limits of YAML: PyYAML follows nesting, aliases and numbers of its input without an end."""

import re
from typing import Any

import yaml

MOST_LEVELS = 100
"""The permitted nesting, with aliases expanded."""
MOST_VALUES = 1_000_000
"""The permitted number of values, with aliases expanded."""
MOST_DIGITS = 4300
"""The permitted length of a number, as in Python; the time for one of base 60 (``1:1:1``) grows with its square."""


class YamlLimitError(yaml.MarkedYAMLError):
    """YAML beyond a limit, with the place."""

    problem: str
    problem_mark: yaml.Mark

    def __str__(self) -> str:
        return f"line {self.problem_mark.line + 1}: {self.problem}"


class Limits:
    """Counts the events of a parser, before anything is built from them."""

    def __init__(self, levels: int = MOST_LEVELS, values: int = MOST_VALUES, *, plain: bool = True) -> None:
        """Begin a text.

        :param plain: whether the number of values is limited in a text without aliases, too.
        """
        self._levels, self._most, self._plain = levels, values, plain
        self._values = 0
        self._open: list[list[Any]] = [[None, 0, 0]]  # by level: anchor, values before it, height
        self._sizes: dict[str, tuple[int, int]] = {}

    def count(self, event: yaml.Event) -> None:
        """Count the next event.

        :raises YamlLimitError: if the text exceeds a limit, or a value contains itself.
        """
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, before, height = self._open.pop()
            self._close(anchor, self._values - before, height + 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._sizes.pop(event.anchor or "", None)
            self._open.append([event.anchor, self._values, 0])
            self._check(event, 1, 0)
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _, _ in self._open) and event.anchor not in self._sizes:
                self._refuse(event, "an alias refers to a value that contains it")
            size, height = self._sizes.get(event.anchor or "", (0, 0))
            self._check(event, size, height)
            self._close(None, 0, height)
        elif isinstance(event, yaml.ScalarEvent):
            is_number = event.implicit[0] or event.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
            if is_number and len(event.value) > MOST_DIGITS and not event.value.strip("0123456789+-_:.eE"):
                self._refuse(event, f"a number with more than {MOST_DIGITS} digits")
            size = 1 + len(event.value) // 100  # aliases repeat long texts, too
            self._check(event, size, 1)
            self._close(event.anchor, size, 1)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._sizes = {}

    def _close(self, anchor: str | None, size: int, height: int) -> None:
        self._open[-1][2] = max(self._open[-1][2], height)
        if anchor is not None:
            self._sizes[anchor] = size, height

    def _check(self, event: yaml.Event, size: int, height: int) -> None:
        self._values += size
        if len(self._open) - 1 + height > self._levels:
            self._refuse(event, f"nested more than {self._levels} levels deep")
        if self._values > self._most and (self._plain or isinstance(event, yaml.AliasEvent)):
            self._refuse(event, f"more than {self._most} values, with aliases expanded")

    def _refuse(self, event: yaml.Event, problem: str) -> None:
        raise YamlLimitError(problem=problem, problem_mark=event.start_mark)  # type: ignore[arg-type] # C's mark


def check_limits(text: str, loader: type[Any] | None = None, *, plain: bool = True) -> None:
    """Check a text that a library loads. Text that is no YAML is left to the library.

    :param loader: the loader of the library, since parsers differ; None for that of :func:`yaml.safe_load`.
    :param plain: as in :class:`Limits`.
    :raises YamlLimitError: if the text exceeds a limit.
    """
    limits = Limits(plain=plain)
    try:
        for event in yaml.parse(text.encode(errors="surrogateescape"), Loader=loader or yaml.SafeLoader):
            limits.count(event)
    except YamlLimitError:
        raise
    except (yaml.YAMLError, ValueError, OverflowError):
        return


class _Limited:
    levels, values = MOST_LEVELS, MOST_VALUES

    def __init__(self, text: str) -> None:
        super().__init__(text)  # type: ignore[call-arg] # of PyYAML's loader
        self._limits = Limits(self.levels, self.values)

    def get_event(self) -> yaml.Event:
        event: yaml.Event = super().get_event()  # type: ignore[misc]
        self._limits.count(event)
        return event


class LimitedLoader(_Limited, yaml.SafeLoader):
    """PyYAML's loader of plain data, within the limits."""


class TextLoader(_Limited, yaml.BaseLoader):
    """PyYAML's loader that makes text of all scalars, within the limits."""


def load_all(text: str, loader: type[LimitedLoader | TextLoader] = LimitedLoader) -> list[Any]:
    """The documents of a text.

    :raises yaml.YAMLError: if it is no YAML, or exceeds a limit.
    """
    try:
        return list(yaml.load_all(text, loader))
    except (ValueError, ArithmeticError, AttributeError) as error:  # an impossible date, escape, tag or directive
        raise yaml.YAMLError(str(error)) from error


def load(text: str, loader: type[LimitedLoader | TextLoader] = LimitedLoader) -> Any:  # noqa: ANN401 - any data
    """The only document of a text; None for an empty one.

    :raises yaml.YAMLError: if it is not one document of YAML, or exceeds a limit.
    """
    documents = load_all(text, loader) or [None]
    if len(documents) > 1:
        raise yaml.YAMLError("expected one document")
    return documents[0]


def check(text: str) -> None:
    """Check that a text is a document of YAML with any tags, within the limits.

    :raises yaml.YAMLError: if it is none.
    """
    yaml.compose(text, LimitedLoader)


def reason(error: Exception) -> str:
    """Why a text is no YAML, in one line; without the names of aliases, anchors and tags, often parts of passwords."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    text = f"line {mark.line + 1}: {problem}" if mark and problem else " ".join(str(error).split())
    return re.sub(r"""\b(alias|anchor|tag|handle) (['"]).*\2""", r"\1", text)
