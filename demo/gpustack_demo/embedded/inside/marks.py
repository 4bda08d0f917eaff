# ruff: noqa: ANN401 - Nova has no types
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-any-return"
"""Track the service that the running code belongs to.

All services run in this one process, where Nova has one configuration, one set of locks and one default database. In a
real cloud each service has its own. So each service gets a *mark*, which the code that runs for it carries. Nova's
global objects are looked up by the mark:

* options: from the service's own configuration files, and ``host``;
* locks between threads, and thread pools: a hanging nova-compute must not block the others;
* the database of code without a cell: that of the service's cell;
* sysfs queries about devices: answered from the host's own devices.

The mark is attached to the request context, which Nova itself passes to every thread that it starts for a request; new
contexts inherit it.

oslo.context keeps the context of a thread in a thread-local object, which eventlet makes greenlet-local by swapping
its ``__dict__`` before each access. A native thread (eventlet.tpool runs libvirt calls in them) can therefore make
another thread lose its context: code of a nova-compute then used the API's options. Context variables are
greenlet-local too, and safe.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from oslo_concurrency import lockutils
from oslo_config import cfg
from oslo_context import context as oslo_context

if TYPE_CHECKING:
    from .faults import InjectedFault

_ATTRIBUTE = "gpustack_mark"
_ABSENT = object()
_generations = itertools.count(1)
reads: dict[str, set[str]] = {}
"""The options that were read, as ``GROUP/NAME``, by kind of service; those of code without a mark are the API's."""
_stack: contextvars.ContextVar[tuple[Mark, ...]] = contextvars.ContextVar("gpustack_marks", default=())


class Mark:
    """One running service; a restarted one has a new mark.

    :param files: its configuration files in reading order, or None when it shares the API's.
    """

    def __init__(self, kind: str, host: str, cell: str, files: list[str] | None) -> None:
        self.kind = kind
        self.host = host
        self.cell = cell
        self.name = f"{kind}@{host}#{next(_generations)}"
        self.physical_functions: set[str] = set()
        self.faults: dict[str, InjectedFault] = {}
        self._files = files
        self._namespace: Any = None
        self._values: dict[tuple[str | None, str], Any] = {}

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Run the block, and everything that it calls in this thread, as this service."""
        stack = _stack.get()
        before = oslo_context.get_current()
        _stack.set((*stack, self))
        try:
            yield
        finally:
            _stack.set(stack)
            # Contexts created meanwhile are marked; the thread continues with other work.
            oslo_context._request_store.context = before

    def put_on(self, context: Any) -> None:
        """Run all work of ``context`` as this service."""
        setattr(context, _ATTRIBUTE, self)

    def option(self, conf: Any, name: str, group: Any) -> Any:
        """The value of an option in this service's files, else its default; ``_ABSENT`` if the files do not apply."""
        key = (group.name if isinstance(group, cfg.OptGroup) else group, name)
        if key == (None, "host"):
            return self.host
        if self._files is None or (group is None and name in conf._groups):
            return _ABSENT
        if "override" in conf._get_opt_info(name, group):
            return _ABSENT
        if key not in self._values:
            self._values[key] = conf._do_get(name, group, self._parsed(conf))[0]
        return self._values[key]

    def _parsed(self, conf: Any) -> Any:
        if self._namespace is None:
            namespace = cfg._Namespace(conf)
            for path in self._files or []:
                cfg.ConfigParser._parse_file(path, namespace)
            self._namespace = namespace  # set only when complete: other threads may read it
        return self._namespace


def current() -> Mark | None:
    """The mark of the running code; None for the API and for this server itself."""
    stack = _stack.get()
    if stack:
        return stack[-1]
    carried: Mark | None = getattr(oslo_context.get_current(), _ATTRIBUTE, None)
    return carried


class _Store:
    """Replaces oslo.context's ``threading.local()`` by a context variable."""

    def __init__(self) -> None:
        self._context: contextvars.ContextVar[Any] = contextvars.ContextVar("gpustack_request_context", default=None)

    @property
    def context(self) -> Any:
        """The context of the running greenlet, or None."""
        return self._context.get()

    @context.setter
    def context(self, value: Any) -> None:
        self._context.set(value)

    @context.deleter
    def context(self) -> None:
        self._context.set(None)


def install(conf: Any) -> None:
    """Make options, locks and aliases depend on the running service."""
    oslo_context._request_store = _Store()  # type: ignore[assignment,unused-ignore]
    _install_inheritance()
    _install_options(conf)
    _install_locks()
    _install_executors()
    _install_aliases()


def _install_inheritance() -> None:
    """Let new contexts inherit the mark of the running service (Nova creates one for each cell, for example)."""
    original = oslo_context.RequestContext.update_store

    def update_store(self: Any) -> None:
        mark = current()
        if mark is not None and not hasattr(self, _ATTRIBUTE):
            mark.put_on(self)
        original(self)

    oslo_context.RequestContext.update_store = update_store  # type: ignore[method-assign,unused-ignore]


def _install_options(conf: Any) -> None:
    original = cfg.ConfigOpts._get

    def get(self: Any, name: str, group: Any = None, namespace: Any = None) -> Any:
        if self is conf and namespace is None:
            mark = current()
            section = group.name if isinstance(group, cfg.OptGroup) else group or "DEFAULT"
            reads.setdefault(mark.kind if mark else "api", set()).add(f"{section}/{name}")
            if mark is not None:
                value = mark.option(self, name, group)
                if value is not _ABSENT:
                    return value
        return original(self, name, group, namespace)

    cfg.ConfigOpts._get = get  # type: ignore[method-assign,unused-ignore]


def _install_locks() -> None:
    def own(function: Any) -> Any:
        @functools.wraps(function)
        def lock(name: str, *args: Any, **kwargs: Any) -> Any:
            mark = current()
            return function(f"{mark.name} {name}" if mark else name, *args, **kwargs)

        return lock

    lockutils.internal_lock = own(lockutils.internal_lock)
    lockutils.internal_fair_lock = own(lockutils.internal_fair_lock)


def _install_executors() -> None:
    """One thread pool of each kind per service. Since 2026.2 Nova has one per process (live migrations: one thread)."""
    try:
        from nova import thread_pool_factory
    except ImportError:
        return

    class Factory(thread_pool_factory.ThreadPoolFactory):
        def get_executor(self, executor_type: Any) -> Any:
            mark = current()
            if mark is None:
                return super().get_executor(executor_type)
            key = (mark.name, executor_type)
            if key not in self._all_executors:
                size = thread_pool_factory.ExecutorsPoolSize.get(executor_type)
                self._all_executors.setdefault(key, self._new_executor(size, f"{mark.name} {executor_type.value}"))
            return self._all_executors[key]

    thread_pool_factory.FACTORY = Factory()


def _install_aliases() -> None:
    """Cache aliases per service; newer releases of Nova cache them per process."""
    from nova.pci import request

    cached: Any = getattr(request, "get_alias_from_config", None)
    if not hasattr(cached, "__wrapped__"):
        return
    known: dict[str | None, Any] = {}

    def aliases() -> Any:
        mark = current()
        name = mark.name if mark else None
        if name not in known:
            known[name] = cached.__wrapped__()
        return known[name]

    aliases.cache_clear = known.clear  # type: ignore[attr-defined]
    request.get_alias_from_config = aliases
