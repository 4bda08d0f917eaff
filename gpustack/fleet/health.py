"""The health of GPUs with their use: who has one that shows signs, where a host, Nova and Placement differ. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from gpustack.base.findings import Finding, once
from gpustack.fleet.index import Answers, Index
from gpustack.fleet.join import join
from gpustack.fleet.model import Fleet
from gpustack.fleet.table import columns
from gpustack.hosts.health.check import Report


def with_use(reports: Iterable[Report], answers: Answers) -> tuple[tuple[Report, ...], Fleet]:
    """Return the reports with the use of each GPU and the findings about it, and the fleet.

    A finding without a row in the report of its host is among the others; those of other hosts are left out.

    :param reports: those of ``answers.hosts``, in their order.
    """
    index, fleet = Index(answers), join(answers)
    shown = {column.key: column for column in columns(fleet)}
    uses: dict[tuple[str, str], dict[str, object]] = {}
    for gpu in fleet.gpus:
        if (host := index.facts(gpu.node or gpu.host)) is not None:
            state = shown["state"].cell(gpu)
            uses[host.hostname, gpu.address] = {
                "state": f"{gpu.model}, {state}" if gpu.units > 1 else state,
                "units": gpu.units,
                "used": gpu.used,
                "holders": shown["holders"].value(gpu),
                "instances": shown["server"].cell(gpu),
            }
    found: dict[str, dict[str, list[Finding]]] = {}
    for entry in fleet.findings:
        node, _, address = entry.place.partition(" ")
        if (host := index.facts(node)) is not None:
            found.setdefault(host.hostname, {}).setdefault(address, []).append(entry)
    joined = []
    for host, report in zip(answers.hosts, reports, strict=True):
        name, here = host.hostname, found.get(host.hostname, {})
        gpus = tuple(
            replace(
                health,
                use=uses.get((name, health.gpu.main.address), {}),
                findings=tuple(once([*health.findings, *here.pop(health.gpu.main.address, ())])),
            )
            for health in report.gpus
        )
        joined.append(replace(report, gpus=gpus, others=(*report.others, *chain.from_iterable(here.values()))))
    return tuple(joined), fleet
