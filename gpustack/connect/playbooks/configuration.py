"""Choose Ansible's configuration, without running code from the current directory.

Ansible reads ``ansible.cfg`` of the current directory before the user's own
(``ansible/config/manager.py``, ``find_ini_config_file``), and such a file can name plug-ins, which are code. The
current directory is usually a spec repository, so its ``ansible.cfg`` is used only if ``ANSIBLE_CONFIG`` names it.
"""

import configparser
import getopt
import locale
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpustack.base.errors import UsageError

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
        path = self.path
        if path is None:
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
