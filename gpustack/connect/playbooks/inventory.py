"""Inventories of named hosts, or of this machine."""

import contextlib
import functools
import json
import os
import platform
import re
import shlex
import string
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gpustack.base.errors import HostError, UsageError
from gpustack.base.text import listed, printable
from gpustack.connect.playbooks.run import configuration
from gpustack.connect.ssh.config import HostSettings


def inventory_of(hosts: Sequence[str]) -> str:
    """An inventory in JSON, which Ansible reads as YAML.

    :param hosts: names, each as ``[user@]name``.
    """
    entries: dict[str, dict[str, str]] = {}
    for host in hosts:
        user, _, name = host.rpartition("@")
        entries[name] = {"ansible_user": user} if user else {}
    return json.dumps({"all": {"hosts": entries}}, indent=2)


def inventory_of_this_machine() -> str:
    """An inventory with this machine, under its own name."""
    variables = {"ansible_connection": "local", "ansible_python_interpreter": interpreter()}
    return json.dumps({"all": {"hosts": {platform.node(): variables}}}, indent=2)


def interpreter() -> str:
    """The Python for Ansible's modules on this machine: the one that runs gpustack, outside its virtual environment.

    Ansible's discovery may choose a Python that does not run, such as a shim of pyenv. The path of the environment may
    contain a space, where ansible-core 2.16 splits it. Modules need no packages of the environment.
    """
    return str(Path(sys.executable).resolve())


def limit_of(hosts: Iterable[str]) -> str:
    """The content of a file for ``--limit @FILE``: one name per line."""
    return "".join(f"{host}\n" for host in hosts)


_SSH_OPTIONS = {
    *("proxyjump", "proxycommand", "user", "port", "identityfile", "identitiesonly", "identityagent"),
    *("connecttimeout", "userknownhostsfile", "globalknownhostsfile", "hostkeyalias"),
}
"""The options of ``ansible_ssh_common_args`` that the SSH reader honours."""
_WITHOUT_EFFECT = re.compile(
    "(stricthostkeychecking|checkhostip|control(master|persist|path)|serveralive.*|compression|loglevel|tcpkeepalive"
    "|forwardagent|batchmode|addkeystoagent)"
)
"""Options without an effect on the reader: host keys are always checked, and each run has one connection."""
_CONNECTION = re.compile("ansible_((ssh|become|paramiko)_.*|password)")
_UNUSED = re.compile(
    "ansible_ssh_(pipelining|retries|transfer_method|control_path.*|host_key_checking|timeout|extra_args|common_args|"
    "host|user|port|private_key_file)|ansible_become_(method|user)|ansible_paramiko_host_key_checking"
)
_INTERNAL = ("all", "ungrouped")
MOST_LEVELS = 100
"""The permitted nesting of groups: the time for each group grows with the number of those above it."""
MOST_HOSTS = 100_000
"""The permitted number of hosts of one line with ranges."""


@functools.cache
def _ansible() -> Any:  # noqa: ANN401 - Ansible has no types
    """Ansible's classes, imported with the configuration that playbooks use."""
    from ansible.errors import AnsibleError

    with tempfile.TemporaryDirectory(prefix="gpustack-") as directory:
        chosen = configuration(os.environ, Path.cwd()).environment(os.environ, Path(directory))
        before = dict(os.environ)
        os.environ["ANSIBLE_CONFIG"] = chosen["ANSIBLE_CONFIG"]
        try:
            from ansible import constants
            from ansible.inventory import data as inventory_data
            from ansible.inventory import group
            from ansible.inventory.manager import InventoryManager, split_host_pattern
            from ansible.parsing.dataloader import DataLoader
            from ansible.plugins import inventory as plugins
            from ansible.plugins.loader import init_plugin_loader
            from ansible.template import Templar
            from ansible.utils.collection_loader import AnsibleCollectionConfig
            from ansible.utils.display import Display
            from ansible.vars.manager import VariableManager

            if not AnsibleCollectionConfig.collection_finder:
                init_plugin_loader()
        except Exception as error:
            remedy = "correct ansible.cfg and the ANSIBLE_* variables; ANSIBLE_HOME replaces the directory ~/.ansible"
            raise UsageError(f"Ansible does not start: {' '.join(str(error).split())}", remedy=remedy) from error
        finally:
            os.environ.pop("ANSIBLE_CONFIG")
            os.environ.update(before)
    constants.INVENTORY_ANY_UNPARSED_IS_FAILED = True
    show = (display := Display()).display  # its warnings name hosts and groups
    display.display = lambda text, *words, **named: show(printable(_unquoted(text)), *words, **named)

    class LimitedDataLoader(DataLoader):  # type: ignore[misc]
        def load(self, data: str, *words: object, **named: object) -> object:
            check_yaml(data, str(named.get("file_name", "")))
            return super().load(data, *words, **named)

    expand = plugins.expand_hostname_range

    def expanded(line: str) -> list[str]:
        check_range(line)
        names: list[str] = expand(line)
        return names

    class LimitedGroup(group.Group):  # type: ignore[misc]
        def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401 - as object's
            if name == "depth" and value > MOST_LEVELS:
                raise _Refused(f"groups nested more than {MOST_LEVELS} levels deep", printable(self.name))
            super().__setattr__(name, value)

    plugins.expand_hostname_range, inventory_data.Group = expanded, LimitedGroup
    names = (constants, AnsibleError, InventoryManager, LimitedDataLoader, Templar, VariableManager, split_host_pattern)
    return SimpleNamespace(**{each.__name__.rpartition(".")[2]: each for each in names})


_QUOTED = re.compile(
    r"(?sm)\bgot:\s.*?(?=\n\n|\Z)|\b(?:definition|entry:)\s'.*?'[:.]\s|\b(?:to\sbe|String):\s.*|(?:^\d+ [^\n]*\n?)+"
)
"""Lines of an inventory in the messages of Ansible, which breaks them anywhere."""


def _unquoted(message: object) -> str:
    """A message of Ansible without the lines that it quotes: they can contain passwords."""
    return _QUOTED.sub("…\n", str(message))


class _Refused(BaseException):
    """An inventory beyond the limits. Ansible tries its next format after an ``Exception``."""


def check_yaml(text: str, where: str) -> None:
    """Refuse YAML that Ansible's loader follows too far: it recurses in C for each level, and expands aliases.

    :raises _Refused: with the file, the line and the limit.
    """
    import yaml

    from gpustack.base.limited_yaml import YamlLimitError, check_limits

    try:
        check_limits(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader), plain=False)
    except YamlLimitError as error:
        raise _Refused(error.problem, f"{where}:{error.problem_mark.line + 1}") from error


def check_range(line: str) -> None:
    """Refuse a line with ranges such as ``gpu[1:100000000]``, of which Ansible makes a list of names.

    :raises _Refused: with the line and the limit.
    """
    number = 1
    for first, last, step in re.findall(r"\[([^:\]]*):([^:\]]*)(?::([^\]]*))?\]", line):
        with contextlib.suppress(ValueError, ZeroDivisionError):  # Ansible reports these
            position = int if last.isdecimal() else string.ascii_letters.index
            number *= max(1, (position(last) - position(first or "0")) // int(step or 1) + 1)
    if number > MOST_HOSTS:
        raise _Refused(f"a range with more than {MOST_HOSTS} hosts", printable(line[:80]))


class AnsibleInventory:
    """Ansible's inventory: hosts, their groups, and how to reach them. It is read once, and only here."""

    def __init__(self, sources: Sequence[str]) -> None:
        """Read files, directories, scripts or lists such as ``gpu01,``.

        :raises UsageError: if a source can't be read.
        """
        self._sources = ", ".join(sources)
        for source in sources:
            if "," not in source and not (Path(source).is_file() or Path(source).is_dir()):
                raise UsageError("the inventory is no file or directory", where=source, remedy="name it with -i")
        ansible = _ansible()
        with self._errors():
            loader = ansible.LimitedDataLoader()
            if ansible.constants.DEFAULT_VAULT_PASSWORD_FILE or ansible.constants.DEFAULT_VAULT_IDENTITY_LIST:
                from ansible.cli import CLI

                loader.set_vault_secrets(CLI.setup_vault_secrets(loader, [], [], auto_prompt=False))
            self._manager = ansible.InventoryManager(loader=loader, sources=list(sources))
            self._variables = ansible.VariableManager(loader=loader, inventory=self._manager)
        self._loader = loader
        self._lock = threading.Lock()
        self._settings: dict[str, HostSettings] = {}

    @contextlib.contextmanager
    def _errors(self, where: str = "") -> Iterator[None]:
        try:
            yield
        except _Refused as error:
            problem, place = error.args
            raise UsageError(f"the inventory can't be used: {problem}", where=place, remedy="correct it") from error
        except _ansible().AnsibleError as error:
            place, remedy = where or self._sources, "correct it; for a vault, set ANSIBLE_VAULT_PASSWORD_FILE"
            raise UsageError(f"the inventory can't be used: {_unquoted(error)}", where=place, remedy=remedy) from error

    def select(self, patterns: Sequence[str], limit: str | None, ranges: Callable[[list[str]], list[str]]) -> list[str]:
        """The hosts that patterns select; all without a pattern.

        :param patterns: of Ansible, or names with ranges.
        :param ranges: expands names with ranges, which Ansible reads as positions in a group.
        :param limit: a pattern that restricts the hosts further.
        :raises UsageError: if a pattern or all of them match no host.
        """
        known = (*self._manager.groups, *self._manager.hosts)
        parts = [[p] if "[" not in p or p.partition("[")[0] in known else ranges([p]) for p in patterns]
        chosen = [name for part in parts for name in part]
        with self._errors():
            self._manager.subset(self._limit(limit, known, ranges) if limit else None)
            for pattern in chosen:
                if pattern[0] not in "!&" and not self._hosts(pattern):
                    what = f"no host of the inventory matches {pattern!r}"
                    raise UsageError(what, where=self._sources, remedy=self.known_groups())
            names = self._hosts(chosen or "all")
        if not names:
            raise UsageError("no host of the inventory is meant", where=self._sources, remedy=self.known_groups())
        return names

    def _limit(self, limit: str, known: Collection[str], ranges: Callable[[list[str]], list[str]]) -> list[str]:
        """The patterns of a limit, with ranges of names as one regular expression, to which ``!`` and ``&`` apply."""
        parts: list[str] = _ansible().split_host_pattern(limit)
        for number, part in enumerate(parts):
            name = part.lstrip("!&")
            if "[" in name and name[0] not in "~@" and name.partition("[")[0] not in known:
                names = "|".join(re.escape(host) for host in ranges([name]))
                parts[number] = f"{part.removesuffix(name)}~({names})$"
        return parts

    def _hosts(self, pattern: str | list[str]) -> list[str]:
        return [host.name for host in self._manager.get_hosts(pattern) if not host.implicit]

    def known_groups(self) -> str:
        """The groups, for remedies."""
        groups = sorted(name for name in self._manager.groups if name not in _INTERNAL)
        return f"groups of the inventory: {listed(groups, 12) or 'none'}"

    def groups(self, name: str) -> tuple[str, ...]:
        """The groups of a host, without those of all hosts."""
        return tuple(sorted(g.name for g in self._manager.get_host(name).get_groups() if g.name not in _INTERNAL))

    def called(self, name: str) -> str:
        """The name of a host in the spec: ``gpustack_hostname``, as in the playbooks, or its own."""
        with contextlib.suppress(HostError, UsageError):  # reported when the host is read
            return self.settings(name).hostname or name
        return name

    def settings(self, name: str) -> HostSettings:
        """How to reach a host; nothing for a host that the inventory lacks.

        :raises HostError: if the inventory has a variable that the SSH reader can't honour.
        :raises UsageError: if a variable can't be read, such as one in a vault.
        """
        with self._lock:  # threads that read hosts ask; Ansible is not made for them
            if name not in self._settings:
                self._settings[name] = self._reached(name) if name in self._manager.hosts else HostSettings()
            return self._settings[name]

    def _reached(self, name: str) -> HostSettings:
        with self._errors(name):
            values = self._variables.get_vars(host=self._manager.get_host(name), include_hostvars=False)
            templar = _ansible().Templar(loader=self._loader, variables=values)
            used = {key: templar.template(values[key]) for key in values if key in _READ or _CONNECTION.fullmatch(key)}

        def first(*keys: str) -> str | None:
            return next((str(used[key]) for key in keys if used.get(key) not in (None, "")), None)

        sudo = (first("ansible_become") or "").lower() in _TRUE
        refused = {key for key in used if _CONNECTION.fullmatch(key) and not _UNUSED.fullmatch(key)}
        wrong = (key for key, form in _PERMITTED.items() if first(key) and not re.fullmatch(form, str(used[key])))
        if refused := {key for key in (*refused, *wrong) if sudo or "become" not in key}:
            raise _refused(name, min(refused))
        plan = {key.removeprefix("gpustack_"): str(used[key]).strip().lower() for key in _OF_PLAN if first(key)}
        port = first("ansible_port", "ansible_ssh_port")
        identity = first("ansible_private_key_file", "ansible_ssh_private_key_file")
        return HostSettings(
            address=first("ansible_host", "ansible_ssh_host") or "",
            user=first("ansible_user", "ansible_ssh_user"),
            port=int(port) if port else None,
            identity=Path(identity).expanduser() if identity else None,
            sudo=sudo,
            local=(first("ansible_connection") or "").endswith("local"),
            root=(first("gpustack_root") or "").rstrip("/"),
            hostname=first("gpustack_hostname") or "",
            plan={name: int(text) if text.isdecimal() else text in _TRUE for name, text in plan.items()},
            options={
                option: value
                for key in ("ansible_ssh_common_args", "ansible_ssh_extra_args")
                for option, value in _options(name, key, first(key) or "")
            },
        )


_OF_PLAN = ("gpustack_adopt", "gpustack_live", "gpustack_trial", "gpustack_trial_seconds")
_TRUE = ("true", "yes", "1", "on", "y", "t")
_READ = (
    *("ansible_host", "ansible_user", "ansible_port", "ansible_private_key_file", "ansible_connection"),
    *("ansible_become", "gpustack_root", "gpustack_hostname", *_OF_PLAN),
)
_PORT = r"(?a)\d{1,4}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5]"
_PERMITTED = {
    "ansible_connection": r"(.*\.)?(ssh|smart|paramiko|paramiko_ssh|local)",
    "ansible_become_method": r"(.*\.)?sudo",
    "ansible_become_user": "root",
    "ansible_port": _PORT,
    "ansible_ssh_port": _PORT,
    **dict.fromkeys(_OF_PLAN[:3], r"(?i)\s*(true|false|yes|no|on|off|[ynft01])\s*"),
    "gpustack_trial_seconds": r"\d{1,9}",
    "gpustack_root": "/.*",
    "gpustack_hostname": r"[A-Za-z0-9_][A-Za-z0-9._-]{0,253}",
}


def _options(host: str, variable: str, text: str) -> Iterator[tuple[str, str | list[str]]]:
    """The options of a text with arguments of ssh.

    :raises HostError: for an argument that the SSH reader cannot honour.
    """
    try:
        words = iter(shlex.split(text))
    except ValueError as error:
        raise _refused(host, f"{variable} ({error})") from error
    for word in words:
        if word in ("-C", "-q", "-A", "-T"):
            continue
        flag, value = word[:2], word[2:] or next(words, "")
        if flag == "-o":
            option, _, value = value.replace("=", " ", 1).partition(" ")
        else:
            option = {"-J": "proxyjump", "-p": "port", "-l": "user", "-i": "identityfile"}.get(flag, word)
        option = option.lower()
        if _WITHOUT_EFFECT.fullmatch(option) or value == "/dev/null":
            continue
        if option not in _SSH_OPTIONS or not value:
            raise _refused(host, f"{variable} ({word})")
        yield option, [value] if option == "identityfile" else value


def _refused(host: str, variable: str) -> HostError:
    remedy = "remove it, or set options of SSH in ~/.ssh/config; the playbook facts.yml honours it, see --snapshot"
    return HostError(f"gpustack can't honour the variable {variable} of the inventory", where=host, remedy=remedy)
