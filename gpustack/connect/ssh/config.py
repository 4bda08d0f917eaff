"""SSH settings of a host: from the command line, ``~/.ssh/config`` and ``/etc/ssh/ssh_config``, in that order.

Host keys are always checked: ``StrictHostKeyChecking`` and ``CheckHostIP`` are ignored.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpustack.base.errors import HostError
from gpustack.base.files import file_errors, read_text, user_name

if TYPE_CHECKING:
    import paramiko

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
SYSTEM_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
USER_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
DEFAULT_IDENTITIES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
_DEPTH = 16
# Characters that are safe in a ProxyCommand with %h and %r; host names include IPv6 addresses with a zone.
_USER = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@+-]*\$?")
_HOST = re.compile(r"[A-Za-z0-9_.:][A-Za-z0-9_.:%-]*")


@dataclass(frozen=True, kw_only=True)
class HostSettings:
    """How an inventory reaches a host, and what it sets for its plan.

    :ivar address: the name or address to connect to; empty for the host's own name.
    :ivar sudo: whether the inventory becomes root.
    :ivar local: whether the host is this machine, read without SSH.
    :ivar root: the directory that is read as the host's ``/`` (``gpustack_root`` of the playbooks); empty for its own.
    :ivar hostname: the host's name in the spec (``gpustack_hostname``); empty for the inventory's.
    :ivar plan: the options of its plan that are set, as the playbooks take them: ``trial`` for ``gpustack_trial``.
    :ivar options: options of ``ssh_config(5)`` by their names in lower case.
    """

    address: str = ""
    user: str | None = None
    port: int | None = None
    identity: Path | None = None
    sudo: bool = False
    local: bool = False
    root: str = ""
    hostname: str = ""
    plan: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SshOptions:
    """SSH options of the command line.

    :ivar identity: a private key file, offered before the configured ones.
    :ivar config: a file to use instead of ``~/.ssh/config`` and ``/etc/ssh/ssh_config``.
    :ivar known_hosts: a file to use instead of all known-hosts files.
    :ivar timeout: seconds for the connection, and again for the program on the host.
    :ivar sudo: run the program as root, with ``sudo -n``.
    :ivar settings: reads the settings of a host from an inventory; the command line has precedence.
    """

    user: str | None = None
    port: int | None = None
    identity: Path | None = None
    config: Path | None = None
    known_hosts: Path | None = None
    timeout: float = 30.0
    sudo: bool = False
    settings: Callable[[str], HostSettings] = lambda name: HostSettings()

    def of_host(self, name: str) -> SshOptions:
        """The options with those of the inventory for one host."""
        own = self.settings(name)
        both = {name: getattr(self, name) or getattr(own, name) for name in ("user", "port", "identity", "sudo")}
        return replace(self, **both)


@dataclass(frozen=True, kw_only=True)
class SshTarget:
    """The resolved SSH settings of one host.

    :ivar name: the host as the user named it.
    :ivar key_names: names of its key in known-hosts files, in order of preference.
    :ivar agent: the socket of the SSH agent whose keys are offered; empty for none.
    :ivar jumps: jump hosts, in the order of connection.
    :ivar connect_timeout: seconds.
    """

    name: str
    hostname: str
    port: int
    user: str
    key_names: tuple[str, ...]
    known_hosts: tuple[Path, ...]
    identities: tuple[Path, ...] = ()
    identities_only: bool = False
    agent: str = ""
    jumps: tuple[str, ...] = ()
    proxy_command: str | None = None
    connect_timeout: float = 30.0


@dataclass(frozen=True, kw_only=True)
class SshConfig:
    """Command-line options and parsed configuration files, for all hosts."""

    options: SshOptions
    _parsed: paramiko.SSHConfig = field(repr=False)

    @classmethod
    def load(cls, options: SshOptions) -> SshConfig:
        """Read the configuration files.

        :raises HostError: if a file can't be read or parsed.
        """
        import paramiko

        user = Path("~/.ssh/config").expanduser()
        files = [options.config] if options.config else [f for f in (user, SYSTEM_CONFIG) if os.path.isfile(f)]  # noqa: PTH113
        text = "".join(line for path in files for line in ("Host *\n", *_lines(path)))
        try:
            return cls(options=options, _parsed=paramiko.SSHConfig.from_text(text))
        except paramiko.ConfigParseError as error:
            names = ", ".join(map(str, files))
            raise HostError(f"can't be understood: {error}", where=names, remedy="correct that line") from error

    def target(self, name: str, *, jump: bool = False) -> SshTarget:
        """Resolve the settings of a host.

        :param name: ``[user@]host``.
        :param jump: ``name`` is a jump host (``[user@]host[:port]``); user, port and identity of the command line do
            not apply.
        :raises HostError: if the name or the host's configuration is invalid.
        """
        common = SshOptions(known_hosts=self.options.known_hosts, timeout=self.options.timeout)
        options = common if jump else self.options.of_host(name)
        own = options.settings(name)
        given_user, host, given_port = _parts(name, jump=jump)
        host = _parts(own.address, jump=False)[1] if own.address else host
        settings = {**self._settings(name, host), **own.options}
        try:
            port = int(options.port or given_port or settings.get("port") or 22)
            timeout = float(settings.get("connecttimeout") or options.timeout)
        except ValueError as error:
            raise _senseless(name, error) from error
        hostname = settings.get("hostname", host)
        alias = settings.get("hostkeyalias")
        # An inventory leaves tokens in it; those of configuration files are replaced.
        command = _unless_none(settings.get("proxycommand"))
        hops = (_unless_none(settings.get("proxyjump")) or "").split(",")
        return SshTarget(
            name=name,
            hostname=hostname,
            port=port,
            user=options.user or given_user or settings.get("user") or user_name(),
            key_names=(alias,) if alias else (hostname,) if port == 22 else (f"[{hostname}]:{port}", hostname),
            known_hosts=_known_hosts(options, settings),
            identities=_identities(options, settings.get("identityfile")),
            identities_only=settings.get("identitiesonly", "no").lower() == "yes",
            agent=_agent(settings.get("identityagent", "SSH_AUTH_SOCK")),
            jumps=tuple(hop.strip().removeprefix("ssh://") for hop in hops if hop.strip()),
            proxy_command=command and command.replace("%h", hostname).replace("%p", str(port)),
            connect_timeout=timeout,
        )

    def _settings(self, name: str, host: str) -> Mapping[str, Any]:
        """The host's settings in the configuration files: strings, and lists of identity files."""
        import paramiko

        os.environ["LOGNAME"] = user_name()  # paramiko reads it; without, a user that has no name would be an error
        try:
            return dict(self._parsed.lookup(host))
        except (paramiko.ConfigParseError, paramiko.CouldNotCanonicalize, ValueError) as error:
            raise _senseless(name, error) from error
        except ImportError as error:  # paramiko needs the package invoke for it
            what = "its SSH configuration uses Match exec, which gpustack can't evaluate"
            raise HostError(what, where=name, remedy="name another file with --ssh-config") from error


def _senseless(name: str, error: Exception) -> HostError:
    return HostError(f"its SSH configuration makes no sense: {error}", where=name)


def _parts(name: str, *, jump: bool) -> tuple[str, str, str]:
    """Split a name into user, host and port; missing parts are empty. Only a jump host can have a port."""
    user, _, host = name.rpartition("@")
    if not _HOST.fullmatch(host) or (user and not _USER.fullmatch(user)):
        raise HostError("this is no name of a host", where=name, remedy="name it as [user@]host, as in ~/.ssh/config")
    if jump and host.count(":") == 1:
        host, _, port = host.partition(":")
        return user, host, port
    return user, host, ""


def _known_hosts(options: SshOptions, settings: Mapping[str, Any]) -> tuple[Path, ...]:
    if options.known_hosts:
        return (options.known_hosts,)
    defaults = {"userknownhostsfile": USER_KNOWN_HOSTS, "globalknownhostsfile": SYSTEM_KNOWN_HOSTS}
    names = (name for key, default in defaults.items() for name in settings.get(key, "").split() or default)
    return tuple(Path(name.strip('"')).expanduser() for name in names)


def _agent(value: str) -> str:
    """The socket that ``IdentityAgent`` names: a path, or a variable of the environment; empty for none."""
    if value == "SSH_AUTH_SOCK" or value.startswith("$"):
        return os.environ.get(value.strip("${}"), "")
    return os.path.expanduser(_unless_none(value.strip('"').replace("%d", "~")) or "")  # noqa: PTH111  (may be empty)


def _identities(options: SshOptions, names: list[str] | None) -> tuple[Path, ...]:
    """The key files to offer: that of the command line, then the configured ones; without both, the defaults."""
    from_options = (options.identity,) if options.identity else ()
    configured = tuple(Path(name.strip('"')).expanduser() for name in names or ())
    return (*from_options, *configured) or tuple(Path(name).expanduser() for name in DEFAULT_IDENTITIES)


def _unless_none(value: str | None) -> str | None:
    return None if value is None or value.lower() == "none" else value


def _lines(path: Path, depth: int = 0) -> Iterator[str]:
    """The lines of a configuration file, with included files (``ssh_config(5)``, Include).

    The blocks of an included file end with the file. Then the block that contains the Include continues.
    """
    with file_errors(HostError, "can't be read", path):
        text = read_text(path, errors="replace")
    block = "Host *"
    for line in text.splitlines():
        keyword, _, arguments = line.strip().replace("=", " ", 1).partition(" ")
        if keyword.lower() in ("host", "match"):
            block = line.strip()
        if keyword.lower() != "include":
            yield f"{line}\n"
            continue
        if depth >= _DEPTH:
            raise HostError("files include one another without end", where=str(path))
        for pattern in arguments.split():
            name = os.path.expanduser(pattern.strip('"'))  # noqa: PTH111  (a glob pattern, not yet a path)
            for included in sorted(glob.glob(str(path.parent / name))):  # noqa: PTH207  (may be absolute)
                yield from _lines(Path(included), depth + 1)
        yield f"{block}\n"


def client_version() -> str:
    """The version of the ``ssh`` in PATH, which Ansible runs; its path if it prints none.

    :raises HostError: if there is no ssh, or if it does not start.
    """
    if (path := shutil.which("ssh")) is None:
        problem = "there is no ssh in PATH, which Ansible runs for host apply, verify and undo"
        raise HostError(problem, remedy="apt install openssh-client, or dnf install openssh-clients")
    ran = subprocess.run([path, "-V"], capture_output=True, text=True, errors="replace", timeout=10, check=False)
    text = (ran.stderr or ran.stdout).partition(",")[0].strip()
    if ran.returncode:
        raise HostError(f"ssh does not start: {text}", remedy="run ssh -V; its user needs an entry in /etc/passwd")
    return text or path
