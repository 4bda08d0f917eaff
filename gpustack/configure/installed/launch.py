"""Run a program on the Python of an installed Nova. Python 3.6: it also runs on hosts, over SSH.

NOVA is an interpreter, a virtual environment, a program of Nova (its first line names the interpreter), or
``podman:CONTAINER`` or ``docker:CONTAINER``.
"""

import glob
import json
import os
import shlex
import subprocess
from typing import Any, Dict, List

MARK = "gpustack-nova: "
_ENGINES = ("podman", "docker")
DEVSTACK = {"compute": "nova-cpu.conf", "conductor": "nova_cell1.conf"}
"""The services that DevStack starts with one file of their own."""
_LARGEST = 1 << 20
_ALL = ("api", "compute", "scheduler", "conductor", "super-conductor")


class LaunchError(Exception):
    """The program could not be run; the text is the last line of its errors."""


def command_of(nova):
    """The command that reads a Python program from standard input.

    :raises LaunchError: when NOVA is nothing that runs Python.
    """
    engine, separator, container = nova.partition(":")
    if separator and engine in _ENGINES and container:
        return [engine, "exec", "-i", container, "python3", "-W", "ignore", "-"]
    path = os.path.abspath(os.path.expanduser(nova))
    if os.path.isdir(path):
        path = os.path.join(path, "bin", "python")
    if not os.path.isfile(path):
        raise LaunchError("%s: there is no such program" % path)
    return [*_interpreter(path), "-W", "ignore", "-"]


def _interpreter(path):
    """The interpreter in the first line of a program; the program itself without such a line."""
    with open(path, "rb") as stream:
        lines = stream.read(4096).split(b"\n")
    if not lines[0].startswith(b"#!"):
        return [path]
    words = lines[0][2:].decode("utf-8", "replace").split()
    if words[:1] == ["/bin/sh"] and len(lines) > 1 and b"exec" in lines[1]:  # pip writes long paths like this
        words = [word for word in shlex.split(lines[1].decode("utf-8", "replace")) if word.startswith("/")][:1]
    if not words or not any("python" in word for word in words):
        raise LaunchError("%s: its first line names no Python" % path)
    return words


def run(nova: str, program: str, timeout: float) -> Dict[str, Any]:
    """Run the program; return what it prints after the mark.

    :raises LaunchError: when there is no such Nova, it fails, prints nothing after the mark, or exceeds the time.
    """
    command = command_of(nova)
    shown = " ".join(command)
    try:
        # A program from standard input imports modules of the current directory first. Python 3.6 has no option -P.
        process = subprocess.Popen(
            command, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        output, errors = process.communicate(program.encode("ascii"), timeout)
    except OSError as error:
        raise LaunchError("%s: %s" % (shown, error.strerror))
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise LaunchError("%s: no answer within %d s" % (shown, timeout))
    marked = [line for line in output.decode("utf-8", "replace").splitlines() if line.startswith(MARK)]
    lines = errors.decode("utf-8", "replace").strip().splitlines() or ["exit code %d" % process.returncode]
    if not marked:
        raise LaunchError("%s: %s" % (shown, lines[-1][:300]))
    answer = json.loads(marked[-1][len(MARK) :])
    if "import_error" in answer:
        raise LaunchError("%s: Python %s: %s" % (shown, answer["python"], answer["import_error"]))
    return answer


def files_of(path, service):
    """The files of a path that a service reads without ``--config-file`` (oslo.config, find_config_files; DevStack)."""
    if not os.path.isdir(path):
        return [path]
    own = os.path.join(path, DEVSTACK.get(service, ""))
    if os.path.isfile(own):
        return [own]
    names = ["nova", "nova-" + service]
    main = [os.path.join(path, name + ".conf") for name in names]
    drop_ins = [file for name in names for file in _conf_files(os.path.join(path, name + ".conf.d"))]
    return [file for file in main if os.path.isfile(file)] + drop_ins if os.path.isfile(main[0]) else _conf_files(path)


def other_cells(path: str) -> List[str]:
    """The files with which DevStack starts the conductors of further cells."""
    first = os.path.join(path, DEVSTACK["conductor"])
    return sorted({first, *glob.glob(os.path.join(glob.escape(path), "nova_cell*.conf"))} - {first})


def _conf_files(directory):
    names = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    return [os.path.join(directory, name) for name in names if name.endswith(".conf") and not name.startswith(".")]


def _text(path):
    if not os.path.isfile(path):
        raise LaunchError("%s: there is no such file" % path)
    if os.path.getsize(path) > _LARGEST:
        raise LaunchError("%s: the file is larger than %d bytes" % (path, _LARGEST))
    with open(path, "rb") as stream:
        return stream.read().decode("utf-8")


def jobs_here(arguments):
    """The jobs for configurations of this machine: services that read the same files share one."""
    jobs = []
    for argument in arguments:
        by_files = {}
        for service in argument["services"] or _ALL:
            files = tuple(file for path in argument["paths"] for file in files_of(path, service))
            by_files.setdefault(files, []).append(service)
        if "conductor" in (argument["services"] or _ALL) and len(argument["paths"]) == 1:
            by_files.update({(file,): ["conductor"] for file in other_cells(argument["paths"][0])})
        for files, services in by_files.items():
            texts = {file: _text(file) for file in files}
            kinds = sorted({"conductor" if service == _ALL[-1] else service for service in services})
            job = {"label": argument["label"], "services": kinds, "readers": services, "files": texts, "sysfs": True}
            jobs.append(job)
    return jobs


def main(request):
    """Read and check the configurations of a request on this machine; print the jobs and the answer as JSON."""
    result = {}
    try:
        result["jobs"] = jobs_here(request["arguments"])
        program = request["program"].replace(request["jobs_mark"], ascii(result["jobs"]))
        result["answer"] = run(request["nova"], program, request["timeout"])
    except (LaunchError, OSError, ValueError) as error:
        result["failed"] = str(error)
    print(json.dumps(result))
    return 0
