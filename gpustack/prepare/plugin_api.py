"""The functions that the playbooks' action plugins call on the controller: spec and facts in, plain data out.

The roles carry out the result and decide nothing themselves, so that ``gpustack host plan`` and the playbooks agree.
Everything is imported at the top: Ansible loads an action plugin once and forks for each task and host, and an import
inside a function would run again in every fork. The exception is the client of the cloud, which most runs do not need.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from gpustack.base.by_key import by_key
from gpustack.base.errors import GpustackError, SnapshotError, UsageError
from gpustack.base.files import digest as sha256
from gpustack.base.files import own_name
from gpustack.base.host_groups import pattern
from gpustack.base.operations import BindLive, RemoveFile, RunCommand, WriteFile, count
from gpustack.base.task_results import TaskResult, failure
from gpustack.base.text import LAYOUT, counted, printable
from gpustack.base.text import printable_data as printable_data
from gpustack.cloud.session import disconnect, shared
from gpustack.connect.playbooks import results
from gpustack.connect.playbooks.record import Record
from gpustack.connect.playbooks.reserved import facts_refusal as facts_refusal
from gpustack.connect.playbooks.reserved import keys_result as keys_result
from gpustack.connect.playbooks.reserved import reserved as reserved
from gpustack.connect.playbooks.results import RunResults
from gpustack.hosts.facts.collector.limits import HOST_NAME as HOST_NAME
from gpustack.hosts.facts.images import checked_images
from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.store import MOST_BYTES_OF_HOST, parse_host, save_snapshot
from gpustack.nova_options import mediated, releases
from gpustack.prepare.drain.model import InstanceChoices, Policy
from gpustack.prepare.drain.plan import ServicePlan, show
from gpustack.prepare.drain.recorded import RecordedCloud
from gpustack.prepare.drain.run import Runner, Target
from gpustack.prepare.host.next_boot.difference import MenuExpectation, menus
from gpustack.prepare.host.next_boot.trial import TrialDocument, document
from gpustack.prepare.host.own_files import ADOPTED, AGAIN, JOURNAL, OWNED, digest
from gpustack.prepare.host.plan import HostPlan, plan_host
from gpustack.prepare.host.prove import undone
from gpustack.prepare.host.prove import verify as prove
from gpustack.prepare.host.prove.verify import Verification
from gpustack.prepare.host.results import seen
from gpustack.prepare.host.show import BOOTABLE, READY, UNDONE, show_plan, show_verification
from gpustack.prepare.host.undo import LAST, plan_undo
from gpustack.spec.load import load_spec
from gpustack.spec.model import Spec, left_out


class FileToWrite(TypedDict):
    """A file with its new content; ``expected`` is the current SHA-256 of a file that gpustack does not own."""

    path: str
    content: str
    mode: str
    expected: NotRequired[str]


class CommandToRun(TypedDict):
    """A command, and the reason for it."""

    argv: list[str]
    why: str


class TrialState(TrialDocument):
    """Whether a trial is running or wanted; the other keys exist only if the plan has a trial."""

    running: bool
    wanted: bool


class HostPlanResult(TaskResult):
    """The parts of a plan that the role carries out.

    ``menu``: the menus that GRUB's tool is expected to generate before and after the files are written; empty if the
    plan does not generate one. ``todo``: whether the plan contains changes. ``prove``: whether the commands change boot
    entries that are files, which are then verified before a reboot. ``plan``: the output of
    ``gpustack host plan -f json``. ``last``: the files that an undo removes after its commands. ``settings``: the
    role's options of the plan, from the action plugin.
    """

    plan: dict[str, object]
    counts: dict[str, int]
    write: list[FileToWrite]
    remove: list[str]
    commands: list[CommandToRun]
    bind: list[dict[str, object]]
    reboot: list[str]
    trial: TrialState
    menu: dict[str, MenuExpectation]
    todo: bool
    prove: NotRequired[bool]
    last: NotRequired[list[str]]
    settings: NotRequired[dict[str, object]]


class VerificationResult(TaskResult):
    """The result of a passed verification; ``details`` has every check."""

    verification: dict[str, object]


class SavedResult(TaskResult):
    """A snapshot; ``unusable``: the hosts whose facts are not in it, and why."""

    path: str
    unusable: dict[str, str]


class ServiceResult(TaskResult):
    """The result of a phase; ``todo`` in phase ``plan``: whether an earlier run has left steps to do."""

    todo: bool
    service: dict[str, object]


def plan(
    spec_path: str,
    facts: Mapping[str, Any],
    hostname: str,
    *,
    adopt: bool = False,
    live: bool = False,
    trial: int | None = None,
    named: bool = False,
) -> HostPlanResult | TaskResult:
    """Plan a host. If the spec lacks it and the operator does not name it, its plan is empty.

    :param spec_path: the spec; a relative path starts from the current directory.
    :param facts: the output of the collector on the host; `inventory_groups` are those of the controller.
    :param hostname: the host's name in the spec; it replaces the one in ``facts``.
    :param adopt: whether to replace existing manual configuration.
    :param live: whether to bind on the running host instead of a reboot, where possible.
    :param trial: the time limit of a trial boot of new kernel arguments, in seconds; None for no trial.
    :param named: whether the operator names the host, not only a pattern that matches it.
    :raises gpustack.base.errors.GpustackError: when the spec or the facts can't be used.
    """
    host = _host(facts, hostname)
    spec = _spec(spec_path, host)
    if text := left_out(spec, spec_path, hostname, named=named):
        empty = _result(host, HostPlan(host=hostname, gpus=(), findings=(), refused=False))
        return {**empty, "text": text, "prove": False}
    planned = plan_host(spec, host, adopt=adopt, live=live, trial=trial)
    if planned.refused:
        return _blocked(planned)
    result = _result(host, planned)
    return {**result, "prove": host.boot.bls and bool(result["commands"])}


def spec_seen(spec_path: str) -> dict[str, str]:
    """Path and SHA-256 of the spec that a task read, for the record of the run."""
    return {"path": str(Path(spec_path).absolute()), "sha256": sha256(Path(spec_path))}


class RunRecorder(Record):
    """Collects the events of the callback plugin for the record of a run."""

    def save(self, places: Iterable[str], playbook: str, *, checked: bool) -> None:
        """Write the record at the end of the run: into files, or under names of their own into directories.

        :raises gpustack.base.errors.GpustackError: if the spec can't be read, or a file can't be written.
        """
        specs = tuple(seen(Path(path), digest) for digest, path in self.specs.items())
        hosts = tuple(self.hosts.values())
        for place in places:
            results.save(RunResults(playbook=playbook, checked=checked, specs=specs, hosts=hosts), Path(place))


def undo(facts: Mapping[str, Any], hostname: str, *, force: bool) -> HostPlanResult | TaskResult:
    """Plan to restore a host.

    :param force: whether to remove files that were modified since gpustack wrote them.
    :raises gpustack.base.errors.GpustackError: when the facts can't be used.
    """
    host = _host(facts, hostname)
    planned = plan_undo(host, force=force)
    if planned.refused:
        return _blocked(planned)
    result = _result(host, planned)
    return {
        **result,
        "remove": [path for path in result["remove"] if path not in LAST],
        "last": [path for path in result["remove"] if path in LAST],
    }


def _blocked(planned: HostPlan) -> TaskResult:
    summary = f"the plan for {planned.host} is refused; nothing is changed there"
    return failure(summary, show_plan(planned), planned.findings)


def _result(host: Host, planned: HostPlan) -> HostPlanResult:
    operations = planned.operations
    trial: TrialDocument = {} if planned.trial is None else document(planned.trial)
    return {
        "text": printable(show_plan(planned), keep=LAYOUT),
        "plan": planned.to_dict(),
        "counts": count(operations),
        "write": [_written(o) for o in operations if isinstance(o, WriteFile)],
        "remove": [o.path for o in operations if isinstance(o, RemoveFile)],
        "commands": [{"argv": list(o.argv), "why": o.why} for o in operations if isinstance(o, RunCommand)],
        "bind": [asdict(o) for o in operations if isinstance(o, BindLive)],
        "reboot": list(planned.reboot),
        "trial": {**trial, "running": planned.in_trial, "wanted": bool(trial) and not planned.in_trial},
        "menu": menus(host, planned.operations),
        "todo": bool(operations or planned.reboot),
    }


def _written(operation: WriteFile) -> FileToWrite:
    entry: FileToWrite = {"path": operation.path, "content": operation.content, "mode": operation.mode}
    if operation.path not in (*OWNED, ADOPTED, AGAIN, JOURNAL):
        entry["expected"] = "" if operation.before is None else digest(operation.before)
    return entry


def verify(
    spec_path: str,
    facts: Mapping[str, Any],
    initramfs: Mapping[str, Any] | None,
    hostname: str,
    *,
    trial: bool = False,
    named: bool = False,
) -> VerificationResult | TaskResult:
    """Verify a running host.

    :param initramfs: the content of each kernel's image, by kernel release; None when the images were not read.
    :param trial: whether this boot is a trial; then menu and initramfs are not verified yet.
    :raises gpustack.base.errors.GpustackError: when the spec or the facts can't be used.
    """
    host = _host(facts, hostname)
    spec = _spec(spec_path, host)
    if text := left_out(spec, spec_path, hostname, named=named):
        return {"text": text}
    verified = prove.verify_host(spec, host, checked_images(initramfs, hostname), trial=trial)
    return _verified(verified, READY, "not ready")


def verify_next(spec_path: str, facts: Mapping[str, Any], hostname: str) -> VerificationResult | TaskResult:
    """Verify before a reboot that the boot loader's entries have the arguments.

    :raises gpustack.base.errors.GpustackError: when the spec or the facts can't be used.
    """
    host = _host(facts, hostname)
    verified = prove.verify_next(_spec(spec_path, host), host)
    summary = "not rebooted: its commands have run, and its next boot would not have its arguments"
    return _verified(verified, BOOTABLE, summary)


def verify_undone(
    facts: Mapping[str, Any], initramfs: Mapping[str, Any] | None, hostname: str
) -> VerificationResult | TaskResult:
    """Verify that nothing of gpustack is left on a running host.

    :raises gpustack.base.errors.GpustackError: when the facts can't be used.
    """
    verified = undone.verify_undone(_host(facts, hostname), checked_images(initramfs, hostname))
    return _verified(verified, UNDONE, "not as it was before gpustack")


def _verified(verified: Verification, verdicts: tuple[str, str], summary: str) -> VerificationResult | TaskResult:
    details = show_verification(verified, verdicts)
    if not verified.passed:
        return failure(summary, details, verified.findings)
    return {
        "text": show_verification(verified, verdicts, details=False),
        "details": printable(details, keep=LAYOUT),
        "verification": verified.to_dict(),
    }


def save(
    path: str,
    facts: Mapping[str, tuple[str, dict[str, Any]]],
    unusable: Mapping[str, str],
    removed: Collection[str],
    *,
    check: bool,
) -> SavedResult:
    """Write the facts of a play's hosts into a snapshot.

    :param path: the file, or a directory in which the run gets a file of its own.
    :param facts: the name in the spec and the facts of each host, by the inventory's name.
    :param unusable: the hosts without facts, and why.
    :param removed: the hosts that failed before.
    :param check: whether to write nothing.
    :raises SnapshotError: if the file can't be written.
    """
    documents, failed = list[dict[str, Any]](), dict(unusable)
    names = Counter(name for name, _ in facts.values())
    for host, (name, raw) in facts.items():
        try:
            if names[name] > 1:
                raise UsageError(f"several hosts have the name {name}", remedy="set gpustack_hostname of each host")
            _host(raw, name)
            document = {**raw, "hostname": name}
            if len(json.dumps(document)) + len(",\n") > MOST_BYTES_OF_HOST:
                raise SnapshotError(f"larger than {MOST_BYTES_OF_HOST >> 20} MiB, which is no description of a host")
            documents.append(document)
        except (GpustackError, RecursionError) as error:
            failed[host] = printable(str(error))
    file = own_name(Path.cwd() / Path(path).expanduser(), "facts")
    if documents and not check:
        save_snapshot(file, documents)
    verb = "would have" if check else "has"
    missing = [*removed, *failed]
    text = f"{file} {verb} the facts of {counted(len(documents), 'host')}" if documents else "no facts, no snapshot"
    text += f"; no facts of {pattern(missing)}" if missing else ""
    return {"text": printable(text), "path": str(file), "unusable": failed}


def service_phase(
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
    most: int = 0,
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
    :param most: how many services gpustack may have disabled at a time in the cloud; 0 for no limit.
    :raises gpustack.base.errors.CloudError: if the API refuses or cannot be reached.
    """
    try:
        with RecordedCloud(shared(cloud), log, most) as api:
            runner = Runner(api=api, target=target, seconds=seconds, log=log, recorded=api.recorded)
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
    finally:
        disconnect()
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


def service_choices(
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
    migratable, impossible, vgpus = _of_spec(spec)
    return InstanceChoices(
        guests=_policy("gpustack_guests", guests),
        device_guests=_policy("gpustack_device_guests", device_guests),
        live_migratable=(frozenset(live_migratable) | migratable) - impossible,
        plain_ports=frozenset(plain_ports),
        vgpus=vgpus | {mediated.STANDARD},
        not_running=frozenset(not_running),
    )


def _policy(variable: str, value: str) -> Policy:
    try:
        return Policy(value)
    except ValueError:
        known = ", ".join(Policy)
        raise UsageError(f"{variable} is {value!r}", remedy=f"it must be one of {known}") from None


def _of_spec(path: str | None) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Aliases and classes of vGPUs that can be live-migrated, classes that Nova's release can't migrate, and all."""
    if not path:
        return frozenset(), frozenset(), frozenset()
    spec = _spec(path)
    aliases = {alias for name in spec.models for alias in spec.aliases_of(name)}
    own = {alias for alias in aliases if all(spec.models[name].live_migratable for name in spec.models_of(alias))}
    vgpus = by_key((model.vgpu.resource_class, model) for model in spec.models.values() if model.vgpu)
    if spec.nova is not None and not mediated.does(releases.release(spec.nova.release), "live-migrate"):
        return frozenset(own), frozenset(vgpus), frozenset(vgpus)
    own |= {name for name, models in vgpus.items() if spec.nova and all(model.live_migratable for model in models)}
    return frozenset(own), frozenset(), frozenset(vgpus)


def service_target(hostname: str, facts: Mapping[str, Any] | None, wanted: str, others: Collection[str] = ()) -> Target:
    """Return the host of a task.

    :param hostname: the inventory's name.
    :param facts: the collector's output on it.
    :param wanted: the service's host as the operator named it; empty to find it by name.
    :param others: the operator's names of all other hosts.
    """
    own_name, libvirt = ((facts or {}).get(name) for name in ("hostname", "libvirt"))
    return Target(
        host=hostname,
        own_name=own_name if isinstance(own_name, str) else None,
        wanted=wanted,
        others=tuple(others),
        libvirt=libvirt if isinstance(libvirt, str) and re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4}){2}", libvirt) else None,
    )


def _spec(path: str, *hosts: Host) -> Spec:
    return load_spec(Path.cwd() / Path(path).expanduser(), hosts)


def _host(facts: Mapping[str, Any], hostname: str) -> Host:
    return parse_host({**facts, "hostname": hostname}, hostname)
