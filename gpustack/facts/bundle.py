"""The collector as one Python program: ``python -m gpustack.facts.bundle > collect.py``.

Hosts do not have gpustack installed. The program embeds the modules of :mod:`gpustack.facts.collector` and runs with
the host's Python, from a file or from standard input::

    python3 collect.py [--root DIR]
    python3 - < collect.py
"""

from __future__ import annotations

import ast
import functools
import graphlib
from pathlib import Path

from gpustack.facts import collector

_PROGRAM = '''\
#!/usr/bin/env python3
"""Print what GPU passthrough depends on, from this host, as JSON. Made by gpustack; Python 3.6 or later."""
import sys
import types

SOURCES = {sources!a}

package = types.ModuleType("collector")
package.__path__ = []
sys.modules["collector"] = package
for name, source in SOURCES:
    module = types.ModuleType("collector." + name)
    module.__package__ = "collector"
    sys.modules[module.__name__] = module
    exec(compile(source, "collector/" + name + ".py", "exec"), module.__dict__)
sys.exit(sys.modules["collector.program"].main(sys.argv[1:]))
'''


@functools.cache
def program() -> str:
    """The program's text. It is ASCII, because Python 3.6 decodes standard input by the host's locale."""
    directory = Path(collector.__file__).parent
    texts = {path.stem: path.read_text(encoding="ascii") for path in directory.glob("*.py") if path.stem != "__init__"}
    order = graphlib.TopologicalSorter({name: _needed(text) for name, text in sorted(texts.items())}).static_order()
    return _PROGRAM.format(sources=[(name, texts[name]) for name in order])


def _needed(text: str) -> set[str]:
    """The sibling modules that a module imports."""
    imports = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) and node.level == 1)
    return {str(node.module) for node in imports}


if __name__ == "__main__":
    print(program(), end="")
