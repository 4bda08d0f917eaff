"""The registry of commands: their jobs, for help and documentation, and those that ``openstack`` runs too."""

import importlib.metadata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpustack.base.files import data_table
from gpustack.base.text import quoted

JOBS: Mapping[str, Sequence[str]] = data_table("jobs.toml")
"""The commands' objects by job, in the order of the documentation's front page."""
OF_CLOUD = "capacity cloud flavor gpu history image quota reclaim report support tenancy undo why".split()  # noqa: SIM905
"""The objects of the commands that need the cloud alone: ``openstack`` has them too."""
OTHERS = "Other commands"
"""The job of the commands of other distributions."""


def by_job(names: Iterable[str]) -> Mapping[str, list[str]]:
    """The commands of each job, in the order of the jobs."""
    jobs = {thing: job for job, things in JOBS.items() for thing in things}
    grouped: dict[str, list[str]] = {job: [] for job in (*JOBS, OTHERS)}
    for name in sorted(names):
        grouped[jobs.get(name.split()[0], OTHERS)].append(name)
    return {job: of_job for job, of_job in grouped.items() if of_job}


def gpustack_name(name: str) -> str:
    """The command of ``gpustack`` that ``openstack`` has under this name: ``gpu flavor list``."""
    inner = name.removeprefix("gpu ")
    return inner if inner.split(" ")[0] in OF_CLOUD else name


def typed(name: str, chosen: Mapping[str, str | None], *, openstack: bool) -> str:
    """A command as one types it: for ``openstack``, if its plug-in has it.

    :param name: the name in ``gpustack``.
    :param chosen: the options of ``openstack`` itself; None for one that is not given.
    """
    if not openstack or name.partition(" ")[0] not in OF_CLOUD:
        return f"gpustack {name}"
    options = (f"{option} {quoted(value)}" for option, value in chosen.items() if value)
    return " ".join(("openstack", *options, "gpu", name.removeprefix("gpu ")))


def command_class(name: str) -> Any:  # noqa: ANN401 - a class of cliff's commands
    """The class of a command of ``gpustack``."""
    (entry,) = importlib.metadata.entry_points(group="gpustack.cli", name=name.replace(" ", "_"))
    return entry.load()
