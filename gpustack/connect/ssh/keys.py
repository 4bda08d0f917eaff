"""SSH public key authentication with the agent's keys and identity files."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import paramiko
from paramiko.agent import AgentSSH

from gpustack.base.errors import HostError
from gpustack.base.text import listed, printable, quoted
from gpustack.connect.ssh.config import SshTarget


def authenticate(transport: paramiko.Transport, target: SshTarget) -> None:
    """Offer the agent's keys, then the identity files. Passwords are not supported.

    :raises HostError: if the host accepts no key, or requires a second factor.
    """
    tried: list[str] = []
    skipped: list[str] = []
    with _agent(target, skipped) as agent:
        for label, key in _keys(target, agent, skipped):
            tried.append(label)
            try:
                missing = transport.auth_publickey(target.user, key)
            except paramiko.BadAuthenticationType as error:
                raise _refused(target, f"it takes no keys, only {listed(error.allowed_types, 8)}") from error
            except paramiko.AuthenticationException:
                if not transport.is_active():
                    break
                continue
            if not missing:
                return
            raise _refused(target, f"it wants a second factor ({listed(missing, 8)}), which gpustack can't give")
    reasons = [f"it took none of {', '.join(tried)}" if tried else "there is no key to offer", *skipped]
    raise _refused(target, "; ".join(reasons))


def offered(target: SshTarget) -> tuple[list[str], list[str]]:
    """The labels of the keys that are offered to a host, and the unusable identity files with the reason."""
    skipped: list[str] = []
    with _agent(target, skipped) as agent:
        return [label for label, _key in _keys(target, agent, skipped)], skipped


def _refused(target: SshTarget, why: str) -> HostError:
    return HostError(
        f"refuses the user {target.user}: {why}",
        where=target.name,
        remedy=f"check that `ssh {quoted(f'{target.user}@{target.hostname}')} true` works without a password"
        " (ssh-add, --identity, --user)",
    )


@contextlib.contextmanager
def _agent(target: SshTarget, skipped: list[str]) -> Iterator[AgentSSH]:
    """A connection to the agent of a target. paramiko.Agent knows that of SSH_AUTH_SOCK alone."""
    agent = AgentSSH()
    with socket.socket(socket.AF_UNIX) as connection:
        if target.agent:
            try:
                connection.settimeout(target.connect_timeout)
                connection.connect(target.agent)
                agent._connect(connection)  # type: ignore[attr-defined]  # as paramiko.Agent does
                connection.settimeout(None)  # a signature may wait for its user
            except (OSError, paramiko.SSHException) as error:
                skipped.append(f"the agent at {target.agent} can't be used ({reason(error)})")
        yield agent


def _keys(target: SshTarget, agent: AgentSSH, skipped: list[str]) -> Iterator[tuple[str, paramiko.PKey]]:
    """The keys to offer: first those of the agent (with IdentitiesOnly, only configured ones), then the files."""
    offered: set[bytes] = set()
    wanted = {blob for path in target.identities if (blob := _public_blob(path))}
    for agent_key in agent.get_keys():
        blob = agent_key.asbytes()
        if not target.identities_only or blob in wanted:
            offered.add(blob)
            yield f"the agent's key {agent_key.comment or agent_key.get_name()}", agent_key
    for path in target.identities:
        try:
            key = paramiko.PKey.from_path(path)
        except FileNotFoundError:
            continue
        except (paramiko.PasswordRequiredException, TypeError):
            if _public_blob(path) not in offered:
                skipped.append(f"{path} needs a passphrase (add it to the agent with ssh-add)")
            continue
        except (paramiko.SSHException, OSError, ValueError, AttributeError) as error:
            skipped.append(f"{path} can't be used ({reason(error)})")
            continue
        if key.asbytes() not in offered:
            yield str(path), key


def _public_blob(path: Path) -> bytes | None:
    """The public key file of an identity, to find the same key in the agent; None if there is none."""
    with contextlib.suppress(OSError, ValueError, paramiko.SSHException):
        return bytes(paramiko.pkey.PublicBlob.from_file(f"{path}.pub").key_blob)
    return None


def reason(error: BaseException) -> str:
    """A short text for the cause of a failed connection, in one line: the host may have written it."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, EOFError):
        return "it closed the connection"
    return printable(str(error), keep="") or type(error).__name__
