"""How to reach a host over SSH: the command line, ``~/.ssh/config`` and ``/etc/ssh/ssh_config``, in that order.

Host key checking is never weakened: ``StrictHostKeyChecking`` and ``CheckHostIP`` are not looked at.
"""

from __future__ import annotations

import getpass
import glob
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpustack.errors import HostError
from gpustack.files import file_remedy

if TYPE_CHECKING:
    import paramiko

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
SYSTEM_KNOWN_HOSTS = (Path("/etc/ssh/ssh_known_hosts"), Path("/etc/ssh/ssh_known_hosts2"))
USER_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
DEFAULT_IDENTITIES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
_DEPTH = 16
# What may stand in a command of the configuration (ProxyCommand with %h and %r); IPv6 addresses with their zone.
_USER = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@+-]*\$?")
_HOST = re.compile(r"[A-Za-z0-9_.:][A-Za-z0-9_.:%-]*")


@dataclass(frozen=True, kw_only=True)
class SshOptions:
    """What the command line says.

    :ivar config: the file to use instead of ``~/.ssh/config`` and the system's.
    :ivar known_hosts: the file to use instead of the user's known hosts.
    :ivar timeout: seconds to connect, and then again for the host to answer.
    :ivar sudo: read as root, through ``sudo -n``.
    """

    user: str | None = None
    port: int | None = None
    identity: Path | None = None
    config: Path | None = None
    known_hosts: Path | None = None
    timeout: float = 30.0
    sudo: bool = False


@dataclass(frozen=True, kw_only=True)
class SshTarget:
    """Where and how to connect.

    :ivar name: the host as the user named it.
    :ivar key_names: what its key is called in known hosts, first choice first.
    :ivar jumps: hosts to connect through, first one first.
    """

    name: str
    hostname: str
    port: int
    user: str
    key_names: tuple[str, ...]
    known_hosts: tuple[Path, ...]
    identities: tuple[Path, ...] = ()
    identities_only: bool = False
    agent: bool = True
    jumps: tuple[str, ...] = ()
    proxy_command: str | None = None
    connect_timeout: float = 30.0


@dataclass(frozen=True, kw_only=True)
class SshConfig:
    """The configuration that applies to every host: options and configuration files."""

    options: SshOptions
    _parsed: paramiko.SSHConfig = field(repr=False)

    @classmethod
    def load(cls, options: SshOptions) -> SshConfig:
        """Read the configuration files.

        :raises HostError: when one can't be read or understood.
        """
        import paramiko

        user = Path("~/.ssh/config").expanduser()
        files = [options.config] if options.config else [f for f in (user, SYSTEM_CONFIG) if f.is_file()]
        text = "".join(line for path in files for line in ("Host *\n", *_lines(path)))
        try:
            return cls(options=options, _parsed=paramiko.SSHConfig.from_text(text))
        except paramiko.ConfigParseError as error:
            names = ", ".join(map(str, files))
            raise HostError(f"can't be understood: {error}", where=names, remedy="correct that line") from error

    def target(self, name: str, *, jump: bool = False) -> SshTarget:
        """Resolve a host as the user named it (``[user@]host``).

        :param jump: it is a jump host (``[user@]host[:port]``): the command line's user, port and identity are not
            meant for it.
        :raises HostError: when the configuration of this host makes no sense.
        """
        options = (
            SshOptions(known_hosts=self.options.known_hosts, timeout=self.options.timeout) if jump else self.options
        )
        given_user, host, given_port = _parts(name, jump=jump)
        settings = self._settings(name, host)
        try:
            port = int(options.port or given_port or settings.get("port") or 22)
            timeout = float(settings.get("connecttimeout") or options.timeout)
        except ValueError as error:
            raise _senseless(name, error) from error
        hostname = settings.get("hostname", host)
        alias = settings.get("hostkeyalias")
        return SshTarget(
            name=name,
            hostname=hostname,
            port=port,
            user=options.user or given_user or settings.get("user") or getpass.getuser(),
            key_names=(alias,) if alias else (hostname,) if port == 22 else (f"[{hostname}]:{port}", hostname),
            known_hosts=_known_hosts(options, settings.get("userknownhostsfile")),
            identities=_identities(options, settings.get("identityfile")),
            identities_only=settings.get("identitiesonly", "no").lower() == "yes",
            agent=settings.get("identityagent", "").lower() != "none",
            jumps=_jumps(settings.get("proxyjump")),
            proxy_command=_unless_none(settings.get("proxycommand")),
            connect_timeout=timeout,
        )

    def _settings(self, name: str, host: str) -> Mapping[str, Any]:
        """What the configuration has for a host: texts, and lists of identity files."""
        import paramiko

        try:
            settings: Mapping[str, Any] = self._parsed.lookup(host)
        except (paramiko.ConfigParseError, paramiko.CouldNotCanonicalize, ValueError) as error:
            raise _senseless(name, error) from error
        except ImportError as error:  # paramiko needs the package invoke for it
            raise HostError(
                "its SSH configuration uses Match exec, which gpustack can't evaluate",
                where=name,
                remedy="name another file with --ssh-config",
            ) from error
        return settings


def _senseless(name: str, error: Exception) -> HostError:
    return HostError(f"its SSH configuration makes no sense: {error}", where=name)


def _parts(name: str, *, jump: bool) -> tuple[str, str, str]:
    """User, host and port as they are given; only a jump host has a port. What is not given is empty."""
    user, _, host = name.rpartition("@")
    if not _HOST.fullmatch(host) or (user and not _USER.fullmatch(user)):
        raise HostError("this is no name of a host", where=name, remedy="name it as [user@]host, as in ~/.ssh/config")
    if jump and host.count(":") == 1:
        host, _, port = host.partition(":")
        return user, host, port
    return user, host, ""


def _known_hosts(options: SshOptions, value: str | None) -> tuple[Path, ...]:
    if options.known_hosts:
        return (options.known_hosts,)
    names = value.split() if value else USER_KNOWN_HOSTS
    return (*(Path(name.strip('"')).expanduser() for name in names), *SYSTEM_KNOWN_HOSTS)


def _identities(options: SshOptions, names: list[str] | None) -> tuple[Path, ...]:
    """The key files to offer: the command line's, then the configuration's, else the usual ones."""
    from_options = (options.identity,) if options.identity else ()
    configured = tuple(Path(name.strip('"')).expanduser() for name in names or ())
    usual = tuple(Path(name).expanduser() for name in DEFAULT_IDENTITIES)
    return (*from_options, *configured) if from_options or configured else usual


def _jumps(value: str | None) -> tuple[str, ...]:
    return tuple(hop.strip().removeprefix("ssh://") for hop in (_unless_none(value) or "").split(",") if hop.strip())


def _unless_none(value: str | None) -> str | None:
    return None if value is None or value.lower() == "none" else value


def _lines(path: Path, depth: int = 0) -> Iterator[str]:
    """The lines of a configuration file with those that it includes (``ssh_config(5)``, Include).

    Blocks of an included file end with it: the block around the Include goes on behind it.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise HostError(f"can't be read: {error.strerror}", where=str(path), remedy=file_remedy(error)) from error
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
