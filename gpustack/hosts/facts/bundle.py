"""The collector as one Python program: ``python -P -m gpustack.hosts.facts.bundle > collect.py``.

Hosts do not have gpustack installed. The program embeds the modules of :mod:`gpustack.hosts.facts.collector` and runs
with the host's Python, from a file or from standard input::

    python3 collect.py [--root DIR]
    python3 - < collect.py
"""

import ast
import functools
import graphlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from gpustack.base.files import data_dir


@functools.cache
def program(root: str = "") -> str:
    """The collector's text.

    :param root: the directory that it reads as ``/``; empty: the program's own arguments say so.
    """
    title = "Print what GPU passthrough depends on, from this host, as JSON."
    arguments = ascii(["--root", root]) if root else "sys.argv[1:]"
    return bundled("gpustack.hosts.facts.collector.program", title, arguments)


def bundled(entry: str, title: str, arguments: str) -> str:
    """A program that calls ``main`` of a module, with all modules of gpustack that it imports.

    The text is ASCII, because Python 3.6 decodes standard input by the host's locale. The packages are empty: their
    ``__init__`` is for the controller.

    :param entry: the module's name.
    :param arguments: the arguments of ``main``, as Python's source.
    """
    text = data_dir("bundled-program.txt").read_text(encoding="utf-8")
    return text.format(title=title, sources=_sources(entry), entry=entry, arguments=arguments)


@functools.cache
def _sources(entry: str) -> list[tuple[str, str]]:
    """The modules that a module needs, and itself, by name and text, in the order of execution."""
    texts: dict[str, str] = {}
    needed: dict[str, set[str]] = {}
    open_names = {entry}
    while open_names:
        name = open_names.pop()
        texts[name] = _path(name).read_text(encoding="ascii")
        needed[name] = set(_imports(name, texts[name]))
        open_names |= needed[name] - texts.keys()
    # Sorted, so that the text does not depend on the order of sets.
    order = graphlib.TopologicalSorter({name: sorted(needed[name]) for name in sorted(needed)}).static_order()
    return [(name, texts[name]) for name in order]


def _path(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(name)
    return Path(spec.origin)


def _imports(name: str, text: str) -> Iterator[str]:
    """The modules of gpustack that a module imports."""
    package = name.rpartition(".")[0]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.level == 1 or str(node.module).startswith("gpustack.")):
            origin = ".".join(filter(None, (package, node.module))) if node.level else str(node.module)
            yield from (f"{origin}.{alias.name}" for alias in node.names) if origin == package else (origin,)


if __name__ == "__main__":
    print(program(), end="")
