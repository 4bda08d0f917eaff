"""Known-hosts files: the accepted keys of hosts (``sshd(8)``, SSH_KNOWN_HOSTS FILE FORMAT).

Names can be plain, hashed, patterns with ``*``, ``?`` and ``!``, and ``[host]:port``. A key marked ``@revoked`` is
rejected for all hosts. paramiko does not support host certificates. So a host that has only a ``@cert-authority`` line
is unknown, and the error names that line.
"""

from __future__ import annotations

import base64
import fnmatch
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpustack.base.errors import HostError
from gpustack.base.files import file_error, read_text
from gpustack.base.text import quoted

if TYPE_CHECKING:
    import paramiko

    from gpustack.connect.ssh.config import SshTarget


_REVOKED = "@revoked"
_AUTHORITY = "@cert-authority"


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A line of a known-hosts file.

    :ivar marker: ``@revoked`` for a key that is rejected for all hosts, ``@cert-authority`` for that of a certificate
        authority, or None.
    :ivar place: ``FILE:LINE``.
    """

    names: tuple[str, ...]
    key: paramiko.PKey
    marker: str | None
    place: str

    def is_for(self, name: str) -> bool:
        """Whether the line applies to a host: a pattern matches, and no pattern with ``!`` does."""
        fits = False
        for pattern in self.names:
            if pattern.startswith("!"):
                if fnmatch.fnmatchcase(name, _escaped(pattern[1:])):
                    return False
            elif pattern.startswith("|1|"):
                fits = fits or _is_hash_of(pattern, name)
            else:
                fits = fits or fnmatch.fnmatchcase(name, _escaped(pattern))
        return fits


@dataclass(frozen=True, kw_only=True)
class KnownHosts:
    """The keys of known-hosts files."""

    files: tuple[Path, ...]
    _entries: tuple[_Entry, ...]

    @classmethod
    def load(cls, files: Iterable[Path]) -> KnownHosts:
        """Read known-hosts files; missing files and invalid lines are ignored.

        :raises HostError: if an existing file can't be read.
        """
        files = tuple(files)
        return cls(files=files, _entries=tuple(entry for path in files for entry in _entries(path)))

    @property
    def count(self) -> int:
        """The number of host keys."""
        return sum(entry.marker is None for entry in self._entries)

    def key_types(self, target: SshTarget) -> set[str]:
        """The types of a host's known keys."""
        return {e.key.get_name() for e in self._entries if e.marker is None and self._is_about(e, target)}

    def check(self, target: SshTarget, key: paramiko.PKey) -> None:
        """Check a host's key.

        :raises HostError: if the key is revoked, unknown, or differs from the known keys.
        """
        if any(e.marker == _REVOKED and e.key == key for e in self._entries):
            what = f"shows a host key that {', '.join(map(str, self.files))} marks as revoked ({_fingerprint(key)})"
            raise HostError(what, where=target.name, remedy="don't connect: find out why this key is still in use")
        known = [e.key for e in self._entries if e.marker is None and self._is_about(e, target)]
        if key in known:
            return
        name = quoted(f"/etc/ssh/ssh_host_{_short(key)}_key.pub")
        first = target.key_names[0]
        if any(e.is_for(first) for e in self._entries if e.marker is None):
            raise HostError(
                f"its host key has changed: it shows {_fingerprint(key)}, known is"
                f" {', '.join(sorted({_fingerprint(k) for k in known}))}; somebody may be in between",
                where=target.name,
                remedy="find out why on the host's console. If it was reinstalled, remove the old key"
                f" (ssh-keygen -R {quoted(first)}) and add the new one",
            )
        authorities = [e.place for e in self._entries if e.marker == _AUTHORITY and self._is_about(e, target)]
        certified = "".join(
            f"; certificates of hosts are not checked here, so {place} ({_AUTHORITY}) does not help"
            for place in authorities[:1]
        )
        raise HostError(
            f"its host key is not known: it shows {_fingerprint(key)}{certified}",
            where=target.name,
            remedy=f"compare that with `ssh-keygen -lf {name}` on the host's console;"
            f" if they are the same: `ssh-keyscan -p {quoted(target.port)} {quoted(target.hostname)} >>"
            f" {quoted(self.files[0])}`",
        )

    @staticmethod
    def _is_about(entry: _Entry, target: SshTarget) -> bool:
        """Whether a line applies to a host. As in OpenSSH, a key for port 22 is also accepted on other ports."""
        return any(entry.is_for(name) for name in target.key_names)


def _entries(path: Path) -> Iterator[_Entry]:
    try:
        text = read_text(path, errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise file_error(HostError, "can't be read", path, error) from error
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        marker = fields.pop(0) if fields and fields[0].startswith("@") else None
        if len(fields) < 3 or fields[0].startswith("#") or marker not in (None, _REVOKED, _AUTHORITY):
            continue
        if (key := _key(fields[1], fields[2])) is not None:
            names = tuple(name if name.startswith("|") else name.lower() for name in fields[0].split(","))
            yield _Entry(names=names, key=key, marker=marker, place=f"{path}:{number}")


def _key(kind: str, encoded: str) -> paramiko.PKey | None:
    """The key of a line; None if it is invalid or its type is not supported."""
    import paramiko

    try:
        return paramiko.PKey.from_type_string(kind, base64.b64decode(encoded, validate=True))
    except Exception:  # each key type raises other exceptions on invalid bytes
        return None


def _escaped(pattern: str) -> str:
    """Escape brackets for fnmatch: in known hosts they are literal (``[host]:2222``)."""
    return pattern.replace("[", "[[]")


def _is_hash_of(hashed: str, name: str) -> bool:
    import paramiko

    try:
        return hmac.compare_digest(paramiko.HostKeys.hash_host(name, hashed), hashed)
    except (ValueError, IndexError, AssertionError):
        return False


def _fingerprint(key: paramiko.PKey) -> str:
    return f"{_short(key).upper()} {key.fingerprint}"


def _short(key: paramiko.PKey) -> str:
    name = key.get_name()
    return "ecdsa" if name.startswith("ecdsa") else name.removeprefix("ssh-")
