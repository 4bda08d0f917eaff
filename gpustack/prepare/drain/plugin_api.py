"""The functions that the playbooks' action plugin calls, with plain data as results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from gpustack.base.errors import UsageError
from gpustack.base.task_results import TaskResult, failure
from gpustack.prepare.drain.model import InstanceChoices, Policy
from gpustack.prepare.drain.plan import ServicePlan, show
from gpustack.prepare.drain.run import Runner, Target


class ServiceResult(TaskResult):
    """The result of a phase; ``todo`` in phase ``plan``: whether an earlier run has left steps to do."""

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
    """Carry out one phase of taking a host out of service and restoring it.

    * ``plan`` shows the other phases and changes nothing.
    * ``disable`` disables nova-compute, so that no new instances are scheduled.
    * ``empty`` moves or stops the running instances.
    * ``resume`` starts and enables what gpustack stopped and disabled; only for a host that was just verified.
    * ``failed`` writes to Nova why the host stays out of service, and returns the remaining steps.

    :param cloud: a name in clouds.yaml, ``envvars`` for the ``OS_*`` variables.
    :param why: the reason for the reboot; for ``failed``, the error.
    :param seconds: the time limit for instances, in seconds.
    :param log: is called with each step before it is carried out.
    :param reboot: whether the host will be rebooted, for ``plan``.
    :param disabled: whether this run disabled the service, for ``empty``.
    :raises gpustack.base.errors.CloudError: if the API refuses or cannot be reached.
    """
    from gpustack.cloud.session import connect
    from gpustack.prepare.drain.cloud import ServiceCloud

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
    # Instances that an earlier run stopped are started after the reboot, by the same rules.
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
    not_running: Collection[str] = (),
) -> InstanceChoices:
    """Return the operator's choices from role variables.

    :param live_migratable: aliases whose devices support live migration, in addition to those of the spec.
    :param spec: the path of the spec; None or empty without one.
    :param plain_ports: port types that do not count as devices.
    :param not_running: the ids of instances that do not run, although Nova's data leave that open.
    :raises gpustack.base.errors.UsageError: if a policy does not exist.
    :raises gpustack.base.errors.SpecError: if the spec cannot be used.
    """
    return InstanceChoices(
        guests=_policy("gpustack_guests", guests),
        device_guests=_policy("gpustack_device_guests", device_guests),
        live_migratable=frozenset(live_migratable) | _of_spec(spec),
        plain_ports=frozenset(plain_ports),
        not_running=frozenset(not_running),
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
    aliases = {alias for name in spec.models for alias in spec.aliases_of(name)}
    return frozenset(
        alias for alias in aliases if all(spec.models[name].live_migratable for name in spec.models_of(alias))
    )


def target(hostname: str, facts: Mapping[str, Any] | None, wanted: str, others: Collection[str] = ()) -> Target:
    """Return the host of a task.

    :param hostname: the inventory's name.
    :param facts: the collector's output on it.
    :param wanted: the service's host as the operator named it; empty to find it by name.
    :param others: the operator's names of all other hosts.
    """
    own_name = (facts or {}).get("hostname")
    return Target(
        host=hostname, own_name=own_name if isinstance(own_name, str) else None, wanted=wanted, others=tuple(others)
    )
