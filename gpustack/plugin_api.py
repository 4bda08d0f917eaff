"""What the playbooks' action plugins call on the controller: the spec and a host's facts in, plain data out.

The roles carry out the result and decide nothing themselves, so ``gpustack host plan`` and the playbooks can't
disagree. Everything is imported at the top: Ansible loads an action plugin once and forks for each task and host, and
an import inside a function would run again in every fork.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpustack.errors import SpecError
from gpustack.facts.images import checked_images
from gpustack.facts.model import Host
from gpustack.facts.store import parse_host
from gpustack.findings import Finding, errors
from gpustack.host.own_files import ADOPTED, AGAIN, JOURNAL, OWNED, digest
from gpustack.host.plan import HostPlan, plan_host
from gpustack.host.prove import undone
from gpustack.host.prove import verify as prove
from gpustack.host.prove.verify import Verification
from gpustack.host.show import BOOTABLE, READY, UNDONE, show_plan, show_verification
from gpustack.host.undo import LAST, plan_undo
from gpustack.operations import BindLive, RemoveFile, RunCommand, WriteFile, count
from gpustack.spec.load import load_spec
from gpustack.spec.model import Spec
from gpustack.text import LAYOUT, printable, printable_data


def plan(
    spec_path: str,
    facts: Mapping[str, Any],
    hostname: str,
    *,
    adopt: bool = False,
    live: bool = False,
    trial: int | None = None,
) -> dict[str, Any]:
    """Plan a host.

    :param spec_path: the spec; a relative path starts from the current directory.
    :param facts: what the collector printed on the host.
    :param hostname: the name that the spec knows the host by; it takes the place of the one in ``facts``.
    :param adopt: whether to take over what was set up by hand.
    :param live: whether to bind on the running host what can be bound there, in place of a reboot.
    :param trial: how many seconds a trial boot of new kernel arguments has; None for none.
    :returns: ``text`` to show; ``write``, ``remove``, ``commands``, ``bind``, ``reboot`` and ``trial`` to carry out,
        and ``todo`` whether there is any of it; ``prove`` whether the commands make boot entries that are files, which
        are looked at before a reboot; ``plan`` as ``gpustack host plan -f json`` prints it. Only ``text``,
        ``failed``, ``msg`` and ``findings`` when the plan refuses.
    :raises gpustack.errors.GpustackError: when the spec or the facts can't be used.
    """
    host = _host(facts, hostname)
    outcome = _outcome(plan_host(_spec(spec_path), host, adopt=adopt, live=live, trial=trial), hostname)
    return {**outcome, "prove": host.boot.bls and bool(outcome.get("commands"))}


def undo(facts: Mapping[str, Any], hostname: str, *, force: bool) -> dict[str, Any]:
    """Plan to give a host back.

    :param force: whether files go, too, that somebody has changed since gpustack wrote them.
    :returns: as :func:`plan`, and ``last``: the files to remove once the commands have run.
    :raises gpustack.errors.GpustackError: when the facts can't be used.
    """
    outcome = _outcome(plan_undo(_host(facts, hostname), force=force), hostname)
    removed = outcome.get("remove", [])
    return {
        **outcome,
        "remove": [path for path in removed if path not in LAST],
        "last": [path for path in removed if path in LAST],
    }


def _outcome(planned: HostPlan, hostname: str) -> dict[str, Any]:
    text = show_plan(planned)
    if planned.refused:
        return _failure(f"the plan for {hostname} refuses, and nothing is changed there", text, planned.findings)
    operations = planned.operations
    return {
        "text": printable(text, keep=LAYOUT),
        "plan": planned.to_dict(),
        "counts": count(operations),
        "write": [_written(o) for o in operations if isinstance(o, WriteFile)],
        "remove": [o.path for o in operations if isinstance(o, RemoveFile)],
        "commands": [{"argv": list(o.argv), "why": o.why} for o in operations if isinstance(o, RunCommand)],
        "bind": [asdict(o) for o in operations if isinstance(o, BindLive)],
        "reboot": list(planned.reboot),
        "trial": {
            **(planned.trial.to_dict() if planned.trial is not None else {}),
            "running": planned.in_trial,
            "wanted": planned.trial is not None and not planned.in_trial,
        },
        "todo": bool(operations or planned.reboot),
    }


def _written(operation: WriteFile) -> dict[str, str]:
    """A file to write; of one that is somebody else's, too, what must be there for that: it is read-modify-write."""
    entry = {"path": operation.path, "content": operation.content, "mode": operation.mode}
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
) -> dict[str, Any]:
    """Verify a host that runs.

    :param initramfs: what is in each kernel's image, by kernel release; None when the images were not read.
    :param trial: whether this boot is a trial, of which menu and initramfs are not proved yet.
    :returns: ``text`` to show, ``details`` with every check, and ``verification`` as plain data; ``text``, ``failed``,
        ``msg`` and ``findings`` if the host does not pass.
    :raises gpustack.errors.GpustackError: when the spec or the facts can't be used.
    """
    verified = prove.verify_host(
        _spec(spec_path), _host(facts, hostname), checked_images(initramfs, hostname), trial=trial
    )
    return _verified(verified, READY, f"{hostname} is not ready")


def verify_next(spec_path: str, facts: Mapping[str, Any], hostname: str) -> dict[str, Any]:
    """Verify before a reboot that the boot loader's entries have the arguments.

    :returns: as :func:`verify`.
    :raises gpustack.errors.GpustackError: when the spec or the facts can't be used.
    """
    verified = prove.verify_next(_spec(spec_path), _host(facts, hostname))
    summary = f"{hostname} is not rebooted: its commands have run, and its next boot would not have its arguments"
    return _verified(verified, BOOTABLE, summary)


def verify_undone(facts: Mapping[str, Any], initramfs: Mapping[str, Any] | None, hostname: str) -> dict[str, Any]:
    """Verify that nothing of gpustack's is left on a host that runs.

    :returns: as :func:`verify`.
    :raises gpustack.errors.GpustackError: when the facts can't be used.
    """
    verified = undone.verify_undone(_host(facts, hostname), checked_images(initramfs, hostname))
    return _verified(verified, UNDONE, f"{hostname} is not as it was before gpustack")


def _verified(verified: Verification, verdicts: tuple[str, str], summary: str) -> dict[str, Any]:
    details = show_verification(verified, verdicts)
    if not verified.passed:
        return _failure(summary, details, verified.findings)
    return {
        "text": show_verification(verified, verdicts, details=False),
        "details": printable(details, keep=LAYOUT),
        "verification": verified.to_dict(),
    }


def _failure(summary: str, text: str, findings: Iterable[Finding]) -> dict[str, Any]:
    """A failed task: what stands against it in one line each, since ``text`` has told the rest."""
    blockers = [f"{f.code} {f.place}: {f.message}" for f in errors(findings)]
    return {
        "failed": True,
        "text": printable(text, keep=LAYOUT),
        "msg": printable("\n".join([f"{summary}:", *blockers])),
        "findings": printable_data([f.to_dict() for f in findings]),
    }


def _spec(path: str) -> Spec:
    file = Path.cwd() / Path(path).expanduser()
    if not file.is_file():
        raise SpecError(
            "there is no such file",
            where=str(file),
            remedy="give the spec with -e gpustack_spec=PATH; a relative path starts from the current directory",
        )
    return load_spec(file)


def _host(facts: Mapping[str, Any], hostname: str) -> Host:
    return parse_host({**facts, "hostname": hostname}, hostname)
