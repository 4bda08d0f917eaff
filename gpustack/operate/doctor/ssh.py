"""Check SSH: the client that Ansible uses, keys, and known hosts. No host is contacted."""

from collections.abc import Callable, Iterator, Sequence

from gpustack.base.errors import HostError
from gpustack.base.text import counted, listed
from gpustack.connect.ssh.config import SshConfig, SshOptions, SshTarget, client_version
from gpustack.connect.ssh.keys import offered
from gpustack.connect.ssh.known_hosts import KnownHosts
from gpustack.operate.doctor.check import Check, failed, made, not_configured, ok, warning

_LISTED = 4
_KEYSCAN = "ssh-keyscan HOST, and compare the key on its console"


def checks(options: SshOptions, hosts: Callable[[], Sequence[str]]) -> Iterator[Check]:
    """Check the client, the keys and the known hosts.

    :param hosts: lists the hosts of the spec.
    """
    yield client()
    yield from made("SSH configuration", lambda: _of_hosts(options, hosts()))


def client() -> Check:
    """Whether the ssh that Ansible runs is installed and starts; commands that only read hosts do not need it."""
    try:
        return ok("SSH client", client_version())
    except HostError as error:
        return failed("SSH client", error)


def _of_hosts(options: SshOptions, hosts: Sequence[str]) -> Iterator[Check]:
    config = SshConfig.load(options)
    targets = [config.target(host) for host in hosts if not options.settings(host).local]
    some = targets[0] if targets else config.target("localhost")  # without settings of its own
    yield _keys(some)
    yield _known(targets) if targets else _any_known(some)


def _keys(target: SshTarget) -> Check:
    labels, skipped = offered(target)
    if labels:
        return ok("SSH keys", "; ".join([", ".join(labels), *skipped]))
    remedy = "ssh-add, or name a key with IdentityFile in ~/.ssh/config or --identity"
    return not_configured("SSH keys", "; ".join(["no key to offer", *skipped]), remedy)


def _any_known(target: SshTarget) -> Check:
    if not (count := KnownHosts.load(target.known_hosts).count):
        return not_configured("Known hosts", "no host key is known", _KEYSCAN)
    return ok("Known hosts", counted(count, "key"))


def _known(targets: Sequence[SshTarget]) -> Check:
    files = {target.known_hosts: KnownHosts.load(target.known_hosts) for target in targets}
    missing = [target.name for target in targets if not files[target.known_hosts].key_types(target)]
    number = counted(len(targets), "host")
    if not missing:
        return ok("Known hosts", f"all {number} of the spec have a known key")
    seen = f"{len(missing)} of {number} of the spec have no known key: {listed(missing, _LISTED)}"
    return warning("Known hosts", seen, _KEYSCAN)
