"""The check as a program in a guest: print the problems for people, the facts as JSON, or one line on the console."""

import json
import os
import select
import sys
from typing import Any, Dict, List, Optional

from gpustack.hosts.facts.collector.signs import SignTable

from . import compare, read, report

CONSOLES = ("/dev/console", "/dev/ttyS0", "/dev/ttyAMA0", "/dev/hvc0")
_ACTIVE = "/sys/class/tty/console/active"


def main(arguments: List[str], data: Dict[str, Any]) -> int:
    """Check this guest; return the exit status: 1 if there are problems, 2 if the guest can't be read.

    :param data: ``consoles``, the ids of virtual displays; ``signs``, the table of messages; ``texts``, code, severity,
        message and remedy by kind of problem; ``flavors``, the expected GPUs by the name of the flavor.
    """
    import argparse

    parser = argparse.ArgumentParser(prog="guest-check.py", description="Check the GPUs of this guest.")
    parser.add_argument("--root", default="/", metavar="DIR", help="read this directory as if it were /")
    parser.add_argument("--gpus", type=count, metavar="N", help="the number of GPUs that the flavor promises")
    parser.add_argument("--facts", action="store_true", help="print the facts as JSON")
    parser.add_argument("--report", action="store_true", help="write one line to the console; nothing without GPUs")
    options = parser.parse_args(arguments)
    try:
        facts = read.facts(options.root, data["consoles"], SignTable(data["signs"]))
    except OSError as error:
        sys.stderr.write("guest-check.py: {}: {}\n".format(options.root, error.strerror or error))
        return 2
    if options.facts:
        sys.stdout.write(json.dumps(facts, sort_keys=True) + "\n")
        return 0
    expected = promised(facts, options.gpus, data)
    problems = [{**data["texts"][problem["kind"]], **problem} for problem in compare.problems(facts, expected)]
    codes = sorted({problem["code"] for problem in problems})
    summary = report.summary(facts, expected["count"] if expected else None, codes)
    if options.report:
        if facts["gpus"] or (expected and expected["count"]):
            write(report.line(facts, summary) + "\n", options.root)
        return 0
    sys.stdout.write(summary + "\n" + "".join(map(_text, problems)))
    return 1 if any(problem["severity"] != "info" for problem in problems) else 0


def count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def promised(facts: Dict[str, Any], count: Optional[int], data: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """The expected GPUs: of the command line, else of the instance's flavor; ``None`` if unknown."""
    if count is not None:
        return {"count": count, "ids": []}
    expected: Optional[Dict[str, Any]] = data.get("flavors", {}).get(facts["flavor"])
    return expected


def _text(problem: Dict[str, Any]) -> str:
    """A problem with the texts of its kind."""
    message, remedy = (problem[name].format(**problem["values"]) for name in ("message", "remedy"))
    head = "{} {code} {place}".format(problem["severity"].upper(), **problem)
    return "{}: {}\n  -> {}\n".format(head, message, remedy)


def write(line: str, root: str) -> None:
    """Write a line to the console and to the first serial port, which the hypervisor logs, once each.

    The kernel's console is the last of ``console/active``; a guest with a display has ``tty0`` there.
    """
    try:
        with open(root.rstrip("/") + _ACTIVE) as file:
            main_console = file.read().split()[-1:]
    except OSError:
        main_console = []
    written = False
    for path in CONSOLES:
        if path.rpartition("/")[2] not in main_console:
            written = _written(root.rstrip("/") + path, line.encode("ascii", "replace")) or written
    if not written:
        sys.stdout.write(line)


def _written(path: str, content: bytes) -> bool:
    """Whether the device took the line. A port without a listener must not block the boot."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_APPEND)
    except OSError:
        return False
    try:
        while content and select.select([], [descriptor], [], 10)[1]:
            content = content[os.write(descriptor, content) :]
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return not content
