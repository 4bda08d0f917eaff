"""The interface of a rule: a module of this package. mypy checks each module against it."""

from collections.abc import Iterator
from typing import Protocol, TypeVar

from gpustack.novadb.read import CellReader
from gpustack.novadb.view import Clock, NodeView
from gpustack.repair.verdict import Verdict

Witness = TypeVar("Witness", contravariant=True)


class Rule(Protocol):
    """A class of stale rows: its letter, its title, and its module, whose name contains the class's name."""

    __name__: str
    CLASS: str
    TITLE: str


class NodeRule(Rule, Protocol):
    """A class that judges one compute node from the databases."""

    def judge(self, view: NodeView, clock: Clock, /) -> Iterator[Verdict]:
        """Yield the verdicts on a compute node."""


class CellRule(Rule, Protocol[Witness]):
    """A class that compares a cell with a source outside the databases: Placement, or the hosts' answers."""

    def judge(
        self, reader: CellReader, clock: Clock, witness: Witness, hosts: frozenset[str] | None, /
    ) -> Iterator[Verdict]:
        """Yield the verdicts on a cell.

        :param witness: the data from outside the databases.
        :param hosts: only these hosts; None for all.
        """
