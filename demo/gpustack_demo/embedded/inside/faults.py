# ruff: noqa: ANN401 - Nova has no types
# mypy: disable-error-code="import-not-found,import-untyped,misc"
"""Fault injection: steps of a nova-compute that raise, hang or are skipped."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any

from nova.tests.fixtures import libvirt as fakelibvirt

from .descriptions import FaultState

_PARTS: dict[str, Callable[[Any], Any]] = {
    "manager": lambda manager: manager,
    "driver": lambda manager: manager.driver,
    "rt": lambda manager: manager.rt,
    "report": lambda manager: manager.reportclient,
    "compute_rpc": lambda manager: manager.compute_rpcapi,
}


class InjectedFault:
    """A fault at one step of one service.

    :param step: ``PART.METHOD``; PART is ``driver``, ``manager``, ``rt`` (the resource tracker), ``report`` (the
        Placement client), ``compute_rpc`` (requests to other computes), or ``domain`` for ``domain.migrate``.
    :param action: ``raise``, ``hang`` until released (forever, if the service is killed), or ``skip``.
    :param when: ``before`` or ``after`` the step is done.
    :param times: the number of times; 0 for always.
    """

    def __init__(self, step: str, action: str, when: str, error: str, message: str, times: int) -> None:
        if action not in ("raise", "hang", "skip") or when not in ("before", "after"):
            raise ValueError(f"no such fault: {action} {when}")
        self.step, self.action, self.when = step, action, when
        self.error, self.message = error, message
        self.left = times or -1
        self.hits = 0
        self.waiting = 0
        self._released = threading.Event()

    def release(self) -> None:
        """Release hanging threads, and stop hanging."""
        self.left = 0
        self._released.set()

    def run(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run the step with the fault."""
        if not self.left:
            return original(*args, **kwargs)
        self.left -= 1
        if self.when == "after":
            result = original(*args, **kwargs)
            self._act()
            return result
        self._act()
        return None if self.action == "skip" else original(*args, **kwargs)

    def _act(self) -> None:
        self.hits += 1
        if self.action == "raise":
            raise _exception(self.error, self.message)
        if self.action == "hang":
            self.waiting += 1
            self._released.wait()
            self.waiting -= 1

    def state(self) -> FaultState:
        """The state of the fault as plain data."""
        return {"step": self.step, "hits": self.hits, "waiting": self.waiting}


def _exception(name: str, message: str) -> BaseException:
    module, _, attribute = name.rpartition(".")
    error: BaseException = getattr(importlib.import_module(module or "builtins"), attribute)(message)
    return error


def put(service: Any, fault: InjectedFault) -> None:
    """Inject ``fault`` into ``service``; an existing fault at the same step is replaced."""
    mark = service.gpustack_mark
    mark.faults[fault.step] = fault
    part, _, name = fault.step.partition(".")
    if part == "domain":
        return
    owner = _PARTS[part](service.manager)
    original = getattr(owner, name)
    original = getattr(original, "gpustack_original", original)

    def step(*args: Any, **kwargs: Any) -> Any:
        return fault.run(original, *args, **kwargs)

    step.gpustack_original = original  # type: ignore[attr-defined]
    setattr(owner, name, step)


def clear(service: Any) -> None:
    """Remove all faults from ``service``, and release hanging threads."""
    for fault in service.gpustack_mark.faults.values():
        fault.release()
    service.gpustack_mark.faults.clear()


def migrate_domain(connections: dict[str, Any]) -> Callable[..., None]:
    """Replacement for libvirt's live migration: the domain is started on the destination, then the job is complete."""

    def migrate(domain: Any, destination: str, params: dict[str, Any], flags: int) -> None:
        source = domain._connection
        mark = source.gpustack_mark
        fault = mark.faults.get("domain.migrate")

        def move() -> bool:
            node = destination.split("://", 1)[1].split("/", 1)[0]
            target = next(
                connection
                for connection in connections.values()
                if node in (connection.hostname, connection.gpustack_host)
            )
            target.createXML(params["destination_xml"], 0)
            domain.complete_job()
            # The migration that Nova requests undefines the domain on the source.
            domain._state = fakelibvirt.VIR_DOMAIN_SHUTOFF
            source._vms.pop(domain.name(), None)
            for number in [vm_number for vm_number, other in source._running_vms.items() if other is domain]:
                del source._running_vms[number]
            return True

        if fault is None:
            move()
        else:
            try:
                if not fault.run(move):
                    domain.fail_job()
            except Exception as error:
                domain.fail_job()
                raise fakelibvirt.make_libvirtError(
                    fakelibvirt.libvirtError, str(error), error_code=fakelibvirt.VIR_ERR_INTERNAL_ERROR
                ) from error

    return migrate
