"""Every error that gpustack raises on purpose, and the exit code that each class owns.

A message says what happened; ``where`` names the host, file or place; ``remedy`` says what to do next::

    GpustackError          1   anything not named below
    ├─ UsageError          2   the command line asks for something that can't be (as argparse's own errors)
    ├─ SpecError          10   gpustack.yaml is not valid
    ├─ SnapshotError      11   a saved snapshot can't be used
    ├─ HostError          12   a host could not be reached or read
    ├─ PlanError          13   the plan refuses: an error finding stands against it
    ├─ ApplyError         14   a change could not be carried out
    ├─ JournalError       15   a journal can't be read or does not fit what is there
    ├─ NovaConfigError    20   a nova configuration can't be read or rendered
    ├─ CloudError         21   the OpenStack API refused or could not be reached
    ├─ FlavorError        22   a flavor could not be made whole
    └─ DatabaseError      30   a Nova database could not be read, or is of an unknown schema

``plan`` commands answer 2 under ``--exit-code`` when something would change. ``nova lint`` and ``cleanup``
document their own codes, which are those of ``nova-status`` and ``nova-manage``.
"""

from __future__ import annotations

from typing import ClassVar

from gpustack.text import LAYOUT, printable


class GpustackError(Exception):
    """An error a user can act on.

    :param what: what happened, one sentence without a trailing period.
    :param where: the host, file or place, when there is one.
    :param remedy: what to do next.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return printable(f"{text}\n  → {self.remedy}" if self.remedy else text, keep=LAYOUT)


class UsageError(GpustackError):
    """The command line asks for something that can't be."""

    exit_code = 2


class SpecError(GpustackError):
    """A spec is not valid."""

    exit_code = 10


class SnapshotError(GpustackError):
    """A saved snapshot can't be used."""

    exit_code = 11


class HostError(GpustackError):
    """A host could not be reached or read."""

    exit_code = 12


class PlanError(GpustackError):
    """The plan refuses: an error finding stands against it."""

    exit_code = 13


class ApplyError(GpustackError):
    """A change could not be carried out."""

    exit_code = 14


class JournalError(GpustackError):
    """A journal can't be read, or does not fit what is there."""

    exit_code = 15


class VerifyError(GpustackError):
    """A host is not ready for passthrough: its verification found errors."""

    exit_code = 16


class NovaConfigError(GpustackError):
    """A nova configuration can't be read or rendered."""

    exit_code = 20


class TemplateError(NovaConfigError):
    """A file is a Jinja template: what a service reads is made of it elsewhere."""


class NothingThereError(NovaConfigError):
    """A path that should hold a nova configuration is missing, or holds no file of one."""


class CloudError(GpustackError):
    """The OpenStack API refused, or could not be reached."""

    exit_code = 21


class FlavorError(GpustackError):
    """A flavor could not be made whole."""

    exit_code = 22


class DatabaseError(GpustackError):
    """A Nova database could not be read, or is of an unknown schema."""

    exit_code = 30
