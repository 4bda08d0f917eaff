"""The variables that a host must not set through the facts in its answers.

Ansible gives facts precedence over role defaults and over variables of the inventory, unless
``INJECT_FACTS_AS_VARS`` is off (``ansible/vars/manager.py``, ``VariableManager.get_vars``). A play cannot switch that
off, so hosts with such facts fail. Ansible itself removes facts that steer a connection, but not all
(``ansible/vars/clean.py``, ``clean_facts``): a host could name the programs that the controller starts to copy files.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpustack.base.findings import Code, Finding, finding
from gpustack.base.task_results import TaskResult
from gpustack.base.text import listed, printable, printable_data
from gpustack.connect.playbooks.run import unchecked_keys

PREFIX = "gpustack_"
_MAGIC = frozenset(
    {
        "ansible_facts",
        *("inventory_hostname", "inventory_hostname_short", "group_names", "inventory_dir", "inventory_file", "omit"),
    }
)
"""Variables of Ansible itself that facts replace, in ansible-core 2.16 to 2.21."""
_STEERING = re.compile(
    r"ansible_(?:admin_users|async_dir|common_remote_group|control_path\w*|deprecation_warnings|facts_modules"
    r"|host_key_checking|inject_invocation|interpreter_python_fallback|lookup_url_\w+|no_target_syslog|paramiko_\w+|private_key\w*"
    r"|python_module_rlimit_nofile|remote_tmp|runas_\w+|scp_\w+|sftp_\w+|shell_\w+|ssh_(?!host_)\w+|ssh_host_key_checking"
    r"|sshpass_prompt|su_\w+|sudo_\w+|system_tmpdirs|target_log_info|win_async_startup_timeout|worker_session_isolation)"
)
"""The variables of options of connection, become and shell plugins, which ``clean_facts`` keeps."""
_SHOWN = 8
_LONGEST = 64
_IN_MEMORY = "memory"


def reserved(facts: Mapping[str, Any], variables: Mapping[str, Any] | None = None) -> list[str]:
    """The names among facts that only the operator, or Ansible, sets.

    :param facts: the facts of a module's answer; with ``variables``, Ansible's ``ansible_facts``, whose names lack the
        prefix ``ansible_``.
    :param variables: the variables of the host, into which Ansible has put the facts.
    """
    names = {str(name) for name in facts}
    found = {name for name in names if name.removeprefix("ansible_").startswith(PREFIX) or name in _MAGIC}
    if variables is None:
        return sorted(found | {name for name in names if _STEERING.fullmatch(name)})
    prefixed = {f"ansible_{name}": facts[name] for name in facts}
    # A variable of the operator may have such a name, and a fact of the same name without the prefix does no harm.
    steering = (name for name in prefixed if _STEERING.fullmatch(name) and variables.get(name) == prefixed[name])
    return sorted(found.union(steering))


def facts_refusal(host: str, names: Sequence[str], cache: str) -> TaskResult:
    """The failed task of a host that sent reserved names.

    :param host: the inventory's name, as Ansible's variables have it: a fact may have replaced it.
    :param cache: Ansible's cache plugin (``CACHE_PLUGIN``). All but ``memory`` bring facts of earlier runs.
    """
    cached = "" if cache == _IN_MEMORY else f"; to remove facts of earlier runs ({cache}), add --flush-cache"
    shown = printable(listed([name[:_LONGEST] for name in names], _SHOWN))
    place = "this host" if "inventory_hostname" in names else host
    return _refusal(finding(Code.FACTS_SET_VARIABLES, place=place, names=shown, cached=cached))


def keys_result(host: str, options: Mapping[str, Any], sockets: str | None) -> TaskResult | None:
    """The failed task of a host whose SSH key is not checked, a warning to an operator of Ansible, or None.

    :param options: of its connection plugin, see ``unchecked_keys``.
    :param sockets: as there.
    """
    if not (setting := unchecked_keys(options, sockets)):
        return None
    found = finding(Code.HOST_KEY_UNCHECKED, place=host, setting=setting)
    # Ansible prints equal warnings once.
    return _refusal(found) if sockets else {"warnings": [f"{found.code}: {found.message}. {found.remedy}."]}


def _refusal(refused: Finding) -> TaskResult:
    text = f"{refused.code} {refused.place}: {refused.message}. To continue: {refused.remedy}"
    return {"failed": True, "msg": printable(text), "findings": printable_data([refused.to_dict()])}
