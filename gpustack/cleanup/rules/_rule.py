"""What a class is: a module of this package. mypy checks each against one of these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

from gpustack.cleanup.clock import Clock
from gpustack.cleanup.read import CellReader
from gpustack.cleanup.verdict import Verdict
from gpustack.cleanup.view import NodeView

Witness = TypeVar("Witness", contravariant=True)


class Rule(Protocol):
    """A class of wrong rows: its letter, its title, and its module, which has its name."""

    __name__: str
    CLASS: str
    TITLE: str


class NodeRule(Rule, Protocol):
    """A class that judges one compute node by what the databases know of it."""

    def judge(self, view: NodeView, clock: Clock, /) -> Iterator[Verdict]:
        """The verdicts on a compute node."""


class CellRule(Rule, Protocol[Witness]):
    """A class that compares a cell with a witness from outside of the databases: Placement, or the hosts."""

    def judge(
        self, reader: CellReader, clock: Clock, witness: Witness, hosts: frozenset[str] | None, /
    ) -> Iterator[Verdict]:
        """The verdicts on a cell; on all of its hosts, or some."""
