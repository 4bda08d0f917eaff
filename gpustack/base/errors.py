"""All errors that gpustack raises deliberately, and the exit code of each class.

A message names the object, its state and the expected state. The first line of a class's docstring is the meaning of
its exit code in the documentation: see :func:`exit_codes`.
"""

from typing import ClassVar

from gpustack.base.known_secrets import hidden
from gpustack.base.text import LAYOUT, printable

CHANGES = 3
"""Exit code with ``--exit-code`` if there is something to do. No error has this code."""
INTERRUPTED = 130
BROKEN_PIPE = 141


class GpustackError(Exception):
    """An error without a code of its own; also, the prompt for confirmation was declined.

    :param what: what happened, one sentence without a trailing period.
    :param where: the host, file or place, if there is one.
    :param remedy: what to do next.
    :cvar has_lines: whether ``what`` is a list of problems; otherwise, its lines are joined: others may choose names.
    """

    exit_code: ClassVar[int] = 1
    has_lines: ClassVar[bool] = False

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        self.what = hidden(what if self.has_lines else " ".join(what.splitlines()))
        super().__init__(self.what)
        self.where = where and hidden(where)
        self.remedy = remedy and hidden(remedy)

    def __str__(self) -> str:
        text = f"{printable(self.where, keep='')}: {self.what}" if self.where else self.what
        return printable(f"{text}\n  → {self.remedy}" if self.remedy else text, keep=LAYOUT)


class UsageError(GpustackError):
    """The command line is invalid, or there is no terminal for the prompt for confirmation."""

    exit_code = 2


class SpecError(GpustackError):
    """The spec is invalid."""

    exit_code = 10
    has_lines = True


class SnapshotError(GpustackError):
    """A saved snapshot is unusable."""

    exit_code = 11
    has_lines = True


class HostError(GpustackError):
    """A host was unreachable or unreadable; the others were completed."""

    exit_code = 12


class PlanError(GpustackError):
    """The plan is blocked by an error finding, for all or some hosts or repairs, or by an unclear project name."""

    exit_code = 13


class ApplyError(GpustackError):
    """A change failed or was skipped."""

    exit_code = 14


class JournalError(GpustackError):
    """A journal or saved plan is unreadable, or does not match the current state."""

    exit_code = 15


class VerifyError(GpustackError):
    """The verification of a host found errors."""

    exit_code = 16


class LockedError(GpustackError):
    """Another run changes the same cloud."""

    exit_code = 17


class NovaConfigError(GpustackError):
    """A Nova configuration is unreadable, can't be rendered, or has an error finding."""

    exit_code = 20


class TemplateError(NovaConfigError):
    """A file is a Jinja template, from which a deployment tool renders the file that the service reads."""


class NothingThereError(NovaConfigError):
    """A path is missing, or is a directory without configuration files."""


class CloudError(GpustackError):
    """The OpenStack API refused a request, or was unreachable."""

    exit_code = 21


class FlavorError(GpustackError):
    """A flavor could not be completed, or some of several flavors failed."""

    exit_code = 22


class PartialError(GpustackError):
    """A list, metrics or an answer about GPUs is partial: a source did not answer or refused; the rest was printed."""

    exit_code = 23


class QuotaError(GpustackError):
    """A limit could not be created, changed or deleted; those before were."""

    exit_code = 24


class DatabaseError(GpustackError):
    """A Nova database could not be read or written, or has an unknown schema; the other cells were checked."""

    exit_code = 30


def exit_codes() -> dict[int, str]:
    """Every exit code of all commands with its meaning, in the order of the codes."""
    codes = {
        0: "Done; there may have been nothing to do.",
        CHANGES: "With `--exit-code`: there is something to do, or a finding with severity `warning` or `error`.",
        INTERRUPTED: "Interrupted (Ctrl-C).",
        BROKEN_PIPE: "The program that reads the output ended, such as `head`.",
    }
    classes: list[type[GpustackError]] = [GpustackError]
    for one in classes:
        classes += one.__subclasses__()
        if one.__module__ == __name__ and "exit_code" in vars(one):
            codes[one.exit_code] = (one.__doc__ or "").partition("\n")[0]
    return dict(sorted(codes.items()))
