"""What the playbooks' action plugin calls: a host of the inventory in, plain data out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from gpustack.errors import UsageError
from gpustack.maintenance.model import InstanceChoices, Policy
from gpustack.maintenance.plan import ServicePlan, show
from gpustack.maintenance.run import Runner, Target
from gpustack.task_results import TaskResult, failure


class ServiceResult(TaskResult):
    """A phase's result; ``todo`` of ``plan``: whether an earlier run has left something to do."""

    todo: bool
    service: dict[str, object]


def carry_out(
    phase: str,
    cloud: str,
    target: Target,
    choices: InstanceChoices,
    *,
    why: str,
    seconds: float,
    log: Callable[[str], None],
    reboot: bool = False,
    disabled: bool = False,
) -> ServiceResult:
    """One phase of bringing a host out of service and back.

    ``plan`` shows what the others would do and changes nothing; ``disable`` keeps new guests away; ``empty`` moves or
    stops those that run; ``resume`` starts and enables again what gpustack stopped and disabled, and is for a host that
    has just been verified; ``failed`` says in Nova why a host stays out of service, and tells what is left.

    :param cloud: a name in clouds.yaml, ``envvars`` for the ``OS_*`` variables.
    :param why: what the reboot is for; for ``failed``, what went wrong.
    :param seconds: how long guests may take.
    :param log: is called with each step before it is done.
    :param reboot: whether the host is going to be rebooted, for ``plan``.
    :param disabled: whether this run disabled the service, for ``empty``.
    :raises gpustack.errors.CloudError: when the API refuses, or can't be reached.
    """
    from gpustack.cloudapi import connect
    from gpustack.maintenance.cloud import ServiceCloud

    with connect(cloud) as connection:
        runner = Runner(api=ServiceCloud(connection), target=target, seconds=seconds, log=log)
        if phase == "plan":
            return _planned(runner, choices, why, reboot=reboot)
        if phase == "disable":
            plan = runner.disable(choices, why)
            visible = plan.refused
        elif phase == "empty":
            plan, visible = runner.empty(choices, why, disabled=disabled), True
        elif phase == "failed":
            plan = runner.failed(why)
            visible = plan.todo
        else:
            plan, visible = runner.resume(), True
    outcome = _outcome(plan)
    return {**outcome, "text": outcome["text"] if visible else "", "changed": bool(runner.done)}


def _planned(runner: Runner, choices: InstanceChoices, why: str, *, reboot: bool) -> ServiceResult:
    pending = runner.pending()
    if not reboot:
        text = show(pending) if pending.todo or pending.refused else ""
        return {"text": text, "todo": pending.todo, "service": pending.to_dict(), "changed": False}
    # What an earlier run stopped is started after the reboot, by the same rules as ever.
    return {**_outcome(runner.look(choices, why)), "todo": pending.todo, "changed": False}


def _outcome(plan: ServicePlan) -> ServiceResult:
    text = show(plan)
    task: TaskResult = failure(f"{plan.host} {plan.title}", text, plan.findings) if plan.refused else {"text": text}
    return {**task, "todo": plan.todo, "service": plan.to_dict()}


def choices(
    guests: str,
    device_guests: str,
    live_migratable: Collection[str],
    spec: str | None,
    plain_ports: Collection[str] = (),
) -> InstanceChoices:
    """The operator's choices, out of variables.

    :param live_migratable: aliases whose devices can migrate live, beside those of which the spec says so.
    :param spec: the spec's path, where there is one.
    :param plain_ports: the types of ports that count as no device.
    :raises gpustack.errors.UsageError: when there is no such policy.
    :raises gpustack.errors.SpecError: when the spec can't be used.
    """
    return InstanceChoices(
        guests=_policy("gpustack_guests", guests),
        device_guests=_policy("gpustack_device_guests", device_guests),
        live_migratable=frozenset(live_migratable) | _of_spec(spec),
        plain_ports=frozenset(plain_ports),
    )


def _policy(variable: str, value: str) -> Policy:
    try:
        return Policy(value)
    except ValueError:
        known = ", ".join(Policy)
        raise UsageError(f"{variable} is {value!r}", remedy=f"it must be one of {known}") from None


def _of_spec(path: str | None) -> frozenset[str]:
    if not path:
        return frozenset()
    from gpustack.spec.load import load_spec

    spec = load_spec(Path.cwd() / Path(path).expanduser())
    return frozenset(spec.alias_of(name) for name, model in spec.models.items() if model.live_migratable)


def target(hostname: str, facts: Mapping[str, Any] | None, wanted: str, others: Collection[str] = ()) -> Target:
    """The host that is meant.

    :param facts: what the collector printed on it.
    :param others: the names that the operator has for all other hosts.
    """
    own_name = (facts or {}).get("hostname")
    return Target(
        host=hostname, own_name=own_name if isinstance(own_name, str) else None, wanted=wanted, others=tuple(others)
    )
