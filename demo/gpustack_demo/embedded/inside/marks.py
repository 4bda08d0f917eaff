# ruff: noqa: ANN401 - Nova has no types
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-any-return"
"""Which service the running code belongs to.

Every service runs in this one process, where Nova has one configuration, one set of locks and one default database.
In a cloud each service has its own. So each gets a *mark*, the code that runs for it carries it, and what is global in
Nova is looked up by it:

* options: from the service's own configuration files, and ``host``;
* locks between threads, and pools of threads: a nova-compute that hangs must not hold up the others;
* the database of code that names no cell: the one of the service's cell;
* sysfs questions about devices: answered from the host's own devices.

The mark rides on the request context, which Nova itself carries into every thread that it starts for a request; a
context that is made on the way inherits it.

oslo.context keeps the context of a thread in a thread-local object, which eventlet makes a greenlet-local one. That
one swaps its ``__dict__`` before each access, so that a native thread (eventlet.tpool runs libvirt's calls in such)
can make another thread find no context in the middle of its work: the code that ran for a nova-compute then had the
API's options. Context variables belong to a greenlet, too, and are safe.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import itertools
from collections.abc import Iterator
from typing import Any

from oslo_concurrency import lockutils
from oslo_config import cfg
from oslo_context import context as oslo_context

_ATTRIBUTE = "gpustack_mark"
_ABSENT = object()
_generations = itertools.count(1)
_stack: contextvars.ContextVar[tuple[Mark, ...]] = contextvars.ContextVar("gpustack_marks", default=())


class Mark:
    """One running service; a restarted one has a new mark.

    :param files: its configuration files in the order they are read, or None when it shares the API's.
    """

    def __init__(self, kind: str, host: str, cell: str, files: list[str] | None) -> None:
        self.kind = kind
        self.host = host
        self.cell = cell
        self.name = f"{kind}@{host}#{next(_generations)}"
        self.physical_functions: set[str] = set()
        self.faults: dict[str, Any] = {}
        self._files = files
        self._namespace: Any = None
        self._values: dict[tuple[str | None, str], Any] = {}

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Run the block, and what it calls in this thread, as this service."""
        stack = _stack.get()
        before = oslo_context.get_current()
        _stack.set((*stack, self))
        try:
            yield
        finally:
            _stack.set(stack)
            # Contexts that were made meanwhile are marked; the thread goes on to other work.
            oslo_context._request_store.context = before

    def put_on(self, context: Any) -> None:
        """Let everything that is done for ``context`` be done as this service."""
        setattr(context, _ATTRIBUTE, self)

    def option(self, conf: Any, name: str, group: Any) -> Any:
        """The value of an option in this service's own files, else its default; ``_ABSENT`` when they don't matter."""
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
            self._namespace = namespace  # only when it is whole: others may be about to read it
        return self._namespace


def current() -> Mark | None:
    """The mark of the running code, None for the API and for this server itself."""
    stack = _stack.get()
    if stack:
        return stack[-1]
    carried: Mark | None = getattr(oslo_context.get_current(), _ATTRIBUTE, None)
    return carried


class _Store:
    """In place of oslo.context's ``threading.local()``: the same, by a context variable."""

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
    """A context that is made while a service is at work belongs to that service (Nova makes one for each cell, say)."""
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
    """Since 2026.2 a process has one pool of threads of each kind; that of live migrations has one thread."""
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
    """Newer releases read the alias once for each process: here it is once for each service."""
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
