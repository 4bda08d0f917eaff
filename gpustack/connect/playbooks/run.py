"""Run ``ansible-playbook``, with a configuration that runs no code from the current directory.

Ansible reads ``ansible.cfg`` of the current directory before the user's own
(``ansible/config/manager.py``, ``find_ini_config_file``), and such a file can name plug-ins, which are code. The
current directory is usually a spec repository, so its ``ansible.cfg`` is used only if ``ANSIBLE_CONFIG`` names it.
"""

import configparser
import getopt
import json
import locale
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from gpustack.base.errors import ApplyError, GpustackError, UsageError
from gpustack.base.files import collection_dir, file_errors, open_private, read_text, write_atomic
from gpustack.base.text import LAYOUT, printable
from gpustack.connect.playbooks.record import Record

_SYSTEM = Path("/etc/ansible/ansible.cfg")
_NAME = "ansible.cfg"
_SSH_ARGS = "-C -o ControlMaster=auto -o ControlPersist=60s"
"""The default of ``ssh_args`` (``ansible/plugins/connection/ssh.py``)."""
_EVENTS = "nova_gpustack.passthrough.gpustack_events"
_STRICT = "-o StrictHostKeyChecking=yes"
_SSH_OPTIONS = "1246AaCfGgKkMNnqsTtVvXxYyB:b:c:D:E:e:F:I:i:J:L:l:m:O:o:P:p:Q:R:S:W:w:"
"""As ssh gives them to getopt (OpenSSH 10.0, ``ssh.c``)."""
_LONGEST_DIRECTORY = 76
"""Of the socket directory, in bytes: a socket's path has at most 107, and ssh and Ansible add 28
(``_create_control_path``).
"""


@dataclass(frozen=True, kw_only=True)
class AnsibleConfiguration:
    """The source of Ansible's configuration.

    :param path: the file to use; None for no file.
    :param ignored: the file of the current directory that is not used; None when there is none.
    """

    path: Path | None
    ignored: Path | None = None

    def lines(self) -> list[str]:
        """The used and the skipped file, for the log."""
        used = [f"Ansible configuration: {self.path}"] if self.path else []
        skipped = f"{self.ignored}: skipped; to use it, set ANSIBLE_CONFIG={self.ignored}" if self.ignored else ""
        return [*used, *([skipped] if skipped else [])]

    def environment(self, variables: Mapping[str, str], directory: Path) -> dict[str, str]:
        """The environment variables with which Ansible reads only this configuration and checks SSH host keys.

        :param variables: the operator's environment.
        :param directory: a private directory. Without a configuration, an empty one is created there: otherwise Ansible
            would read the one of the current directory.
        """
        if (path := self.path) is None:
            path = directory / _NAME
            path.touch(mode=0o600)
        # ssh uses the first of several values of an option, and the command line before its configuration files.
        arguments = variables.get("ANSIBLE_SSH_ARGS", _setting(self.path, "ssh_connection", "ssh_args", _SSH_ARGS))
        callbacks = variables.get("ANSIBLE_CALLBACKS_ENABLED", _setting(self.path, "defaults", "callbacks_enabled", ""))
        sockets = directory / "cp"
        # Ansible chooses the sockets' directory (_persistence_controls); only then can gpustack move it.
        chosen = "controlpersist" in arguments.lower() and "controlpath" not in arguments.lower()
        shared = chosen and len(os.fsencode(sockets)) <= _LONGEST_DIRECTORY
        strict = _STRICT if shared else f"{_STRICT} -o ControlPath=none"
        # Ansible starts in a locale with UTF-8 only.
        utf8 = locale.getencoding().lower() in ("utf-8", "utf8")
        return {
            **variables,
            **({} if utf8 else {"LC_ALL": "C.UTF-8"}),
            "ANSIBLE_CONFIG": str(path),
            "ANSIBLE_HOST_KEY_CHECKING": "True",
            "ANSIBLE_PARAMIKO_HOST_KEY_AUTO_ADD": "False",
            "ANSIBLE_SSH_ARGS": f"{strict} {arguments}".strip(),
            # An existing connection may have been opened without the host key check: use only those of this run.
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets),
            "ANSIBLE_SSH_CONTROL_PATH": "",
            # Otherwise any host could set the role's variables by returning `ansible_facts` from a module.
            "ANSIBLE_INJECT_FACT_VARS": "False",
            # Ansible loads callback plugins of a collection only by name.
            "ANSIBLE_CALLBACKS_ENABLED": ",".join(filter(None, (callbacks, _EVENTS))),
        }


def configuration(variables: Mapping[str, str], directory: Path, *, system: Path = _SYSTEM) -> AnsibleConfiguration:
    """Choose the configuration: ``ANSIBLE_CONFIG``, the user's, or the system's.

    :param variables: the environment; the user's file is in its ``HOME``.
    :param directory: the current directory.
    :raises UsageError: when ``ANSIBLE_CONFIG`` names no readable file: Ansible would search other places.
    """
    used: Path | None
    if file := variables.get("ANSIBLE_CONFIG"):
        path = directory / Path(os.path.expandvars(file)).expanduser()
        used = path = path / _NAME if path.is_dir() else path
        if not os.access(path, os.R_OK):
            remedy = "correct ANSIBLE_CONFIG, or unset it"
            raise UsageError(f"ANSIBLE_CONFIG: {path} is no readable file", remedy=remedy)
    else:
        user = Path(variables.get("HOME") or Path.home()) / f".{_NAME}"
        used = next((path for path in (user, system) if os.access(path, os.R_OK)), None)
    present = directory / _NAME
    is_ignored = present.exists() and not (used and present.samefile(used))
    return AnsibleConfiguration(path=used, ignored=present if is_ignored else None)


def unchecked_keys(options: Mapping[str, Any], sockets: str | None) -> str:
    """The variables because of which a connection plugin does not check the host's key; empty if it does.

    :param options: its resolved options, of whatever source. A plugin without ``host_key_checking`` has no such keys.
    :param sockets: the private directory of this run's SSH connections. None if the operator runs ``ansible-playbook``:
        then only a check that is switched off counts, and ``ssh_config`` applies.
    """
    if "ssh_args" not in options:
        checked = options.get("host_key_checking", True) and not options.get("host_key_auto_add")
        return "" if checked else "ansible_host_key_checking"
    off = "-o StrictHostKeyChecking=no" if options.get("host_key_checking") is False else ""
    try:
        # The order of Ansible (ssh.py, _build_command). The first value of an option counts.
        words = shlex.split(f"{options['ssh_args'] or ''} {off} {options.get('ssh_common_args') or ''}")
        given = [value for flag, value in getopt.gnu_getopt(words, _SSH_OPTIONS)[0] if flag == "-o"]
    except (getopt.GetoptError, ValueError):
        return "" if sockets is None else "ansible_ssh_args"  # ssh does not start
    pairs = [value.replace("=", " ", 1).split(None, 1) for value in reversed(given)]
    values = {pair[0].lower(): pair[1].strip().strip('"') for pair in pairs if len(pair) > 1}
    strict, path = values.get("stricthostkeychecking", "").lower(), values.get("controlpath")
    if sockets is None or strict not in ("yes", "true"):
        named = "ansible_host_key_checking" if off and strict == "no" else "ansible_ssh_args"
        return named if sockets is not None or strict in ("no", "off", "false") else ""
    own = "controlpersist" in values and not options.get("control_path") and options.get("control_path_dir") == sockets
    return "" if path == "none" or (path is None and own) else "ansible_control_path"


def _setting(path: Path | None, section: str, name: str, default: str) -> str:
    """A value of a configuration, read as Ansible does. Ansible itself reports errors in the file."""
    parser = configparser.RawConfigParser(inline_comment_prefixes=(";",), strict=False)
    try:
        parser.read([path] if path else [], encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        return default
    return parser.get(section, name, fallback=default)


_TAIL = 12
_NO_MATCH = b"Specified inventory, host pattern and/or --limit leaves us with no hosts to target"
_NO_HOSTS = "no host of the inventory is meant"  # Ansible itself rejects a limit that no host matches
_PIECE = 1 << 16
_START = 60.0
"""Seconds until Ansible prints its version."""
_PATIENCE = 10.0
"""Seconds; a process left behind by Ansible may keep the pipe open indefinitely."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """The arguments of a playbook run.

    :param playbook: its name: ``prepare``.
    :param inventory: files or directories of inventories, or other values of Ansible's ``-i``.
    :param limit: a host pattern, or ``@FILE``; None for all hosts.
    :param variables: Ansible variables of highest precedence.
    :param arguments: more arguments of ``ansible-playbook``.
    :param check: whether it is a dry run (``--check``).
    """

    playbook: str
    inventory: Sequence[str]
    limit: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    check: bool = False

    def argv(self) -> list[str]:
        """The command. It uses the environment in which gpustack runs, since the plug-ins import gpustack."""
        return [
            *_program(),
            *(f"--inventory={source}" for source in self.inventory),
            *([f"--limit={self.limit}"] if self.limit else []),
            *(["--check"] if self.check else []),
            "--diff",
            f"--extra-vars={json.dumps(dict(self.variables))}",
            *self.arguments,
            str(collection_dir() / "playbooks" / f"{self.playbook}.yml"),
        ]


def _program() -> list[str]:
    return [sys.executable, "-P", "-m", "ansible", "playbook"]  # -P: no modules of the current directory


def ansible_version() -> str:
    """The version of the Ansible that runs the playbooks, started with its configuration.

    :raises GpustackError: if it does not start.
    """
    command = [*_program(), "--version"]
    remedy = f"run {shlex.join(command)}"
    with tempfile.TemporaryDirectory(prefix="gpustack-") as directory:
        variables = configuration(os.environ, Path.cwd()).environment(os.environ, Path(directory))
        try:
            ran = subprocess.run(
                command, env=variables, capture_output=True, text=True, errors="replace", timeout=_START, check=False
            )
        except subprocess.TimeoutExpired:
            raise GpustackError(f"Ansible did not start within {_START:g} s", remedy=remedy) from None
    if ran.returncode:
        last = re.split(r"\n(?=[\w.]+Error: )", ran.stderr.strip())[-1] or "no message"  # without traceback
        raise GpustackError(f"Ansible does not start: {' '.join(last.split())}", remedy=remedy)
    return ran.stdout.partition("\n")[0].partition("[")[2].rstrip("] ")


def environment(descriptor: int, directory: Path) -> dict[str, str]:
    """The operator's environment, with host key checks and a log without colour.

    :param descriptor: the pipe of the callback plugin.
    :param directory: a private directory.
    """
    return {
        **configuration(os.environ, Path.cwd()).environment(os.environ, directory),
        "GPUSTACK_EVENTS_FD": str(descriptor),
        "ANSIBLE_RETRY_FILES_ENABLED": "False",
        "ANSIBLE_NOCOLOR": "1",
    }


def play(call: Call, log: Path, directory: Path, listener: Callable[[Record, Sequence[str]], None]) -> Record:
    """Run a playbook.

    :param log: the file for the output of ``ansible-playbook``; it must exist.
    :param directory: a private directory.
    :param listener: called after every event with the record and the hosts whose turn has ended.
    :raises ApplyError: when Ansible ended prematurely.
    :raises UsageError: when no host of the inventory matches.
    :raises KeyboardInterrupt: when it was interrupted; Ansible has then ended too.
    """
    argv = call.argv()
    record = Record(checked=call.check)
    reading, writing = os.pipe()
    with os.fdopen(reading, encoding="utf-8") as events, ExitStack() as stack:
        stream = stack.enter_context(os.fdopen(open_private(log), "ab", buffering=0))
        start = os.fstat(stream.fileno()).st_size
        variables = environment(writing, directory)
        started = f"# ANSIBLE_CONFIG={variables['ANSIBLE_CONFIG']}\n$ ansible-playbook {shlex.join(argv[5:])}\n"
        try:
            what = f"the playbook {call.playbook} was not begun, as its log can't be written"
            with file_errors(ApplyError, what, log):
                stream.write(started.encode())
            printed = stack.enter_context(printable_log(stream))
            process = subprocess.Popen(
                argv, stdout=printed, stderr=subprocess.STDOUT, env=variables, pass_fds=(writing,)
            )
        finally:
            os.close(writing)
        try:
            for line in events:
                listener(record, record.take(json.loads(line)))
            code = process.wait()
        except BaseException:
            # Ansible received the same interrupt from the terminal; it ends its tasks and itself.
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait()
            raise
    if not record.hosts and (record.no_hosts or _NO_MATCH in _printed(log, start)):
        raise UsageError(_NO_HOSTS, remedy="compare --limit with the names in the inventory")
    if not record.ended:
        last = _printed(log, start).decode(errors="replace").strip().splitlines()[-_TAIL:]
        remedy = "\n    ".join([f"the log {log} ends with:", *last])
        raise ApplyError(f"ansible-playbook ended with {code} before it was done", remedy=remedy)
    return record


def _printed(log: Path, start: int) -> bytes:
    """Ansible's output; if no host matches the limit, it has that and no event, and otherwise the reason at its end."""
    with log.open("rb") as stream:
        stream.seek(start)
        return stream.read()


@contextmanager
def printable_log(log: BinaryIO) -> Iterator[int]:
    """Yield the descriptor of a pipe that is copied into a log, made printable because it contains text from hosts.

    At the end, wait until all writers have closed the pipe.
    """
    reading, writing = os.pipe()
    thread = threading.Thread(target=_copy, args=(reading, log), daemon=True, name="log")
    thread.start()
    try:
        yield writing
    finally:
        os.close(writing)
        thread.join(_PATIENCE)


def _copy(reading: int, log: BinaryIO) -> None:
    # The log is closed after _PATIENCE seconds.
    with suppress(ValueError), open(reading, encoding="utf-8", errors="replace", newline="") as texts:
        while piece := texts.readline(_PIECE):
            with suppress(OSError):  # a full disk: without a reader, Ansible would end between two changes of a host
                log.write(printable(piece, keep=LAYOUT).encode())


def as_files(values: Sequence[str], directory: Path) -> list[str]:
    """The operator's ``-e`` values as arguments with files: every user can read a command line, and Ansible logs it.

    The order of the values is kept; ``@FILE`` stays unchanged.

    :param values: each as ``-e`` accepts it: ``@FILE``, YAML or JSON, or ``key=value`` words
        (``ansible/utils/vars.py``, ``load_extra_vars``).
    :param directory: a private directory.
    :raises UsageError: for a value that Ansible can't read: its message would quote the value, or a file's line.
    """
    return [f"--extra-vars={_as_file(value, directory / f'extra-{n}.json')}" for n, value in enumerate(values)]


def _as_file(value: str, path: Path) -> str:
    import yaml
    from ansible.errors import AnsibleError
    from ansible.parsing.splitter import parse_kv

    from gpustack.base.limited_yaml import check, reason

    if not value or value[0] in "/.":
        return value
    file = Path(value[1:]).expanduser() if value[0] == "@" else None
    try:
        text = read_text(file) if file else value if value[0] in "[{" else json.dumps(parse_kv(value))
        try:
            json.loads(text)
        except ValueError:
            check(text)
    except (OSError, UnicodeDecodeError):
        return value  # Ansible reports it
    except (AnsibleError, yaml.YAMLError) as error:
        problem = "quotes or braces are not balanced" if isinstance(error, AnsibleError) else reason(error)
        remedy = "quote values with blanks, quotes or braces, and in YAML those that begin with *, & or !"
        where = f"-e {value}" if file else "-e"
        raise UsageError(f"neither key=value, JSON nor YAML: {problem}", where=where, remedy=remedy) from None
    if file:
        return value
    write_atomic(path, text, mode=0o600)
    return f"@{path}"
