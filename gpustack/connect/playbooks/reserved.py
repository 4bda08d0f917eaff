"""The variables that a host must not set through the facts in its answers.

Ansible gives facts precedence over role defaults and over variables of the inventory, unless
``INJECT_FACTS_AS_VARS`` is off (``ansible/vars/manager.py``, ``VariableManager.get_vars``). A play cannot switch that
off, so hosts with such facts fail.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpustack.base.codes import Code
from gpustack.base.findings import finding
from gpustack.base.task_results import TaskResult
from gpustack.base.text import listed, printable, printable_data

PREFIX = "gpustack_"
_MAGIC = frozenset(
    {"inventory_hostname", "inventory_hostname_short", "group_names", "inventory_dir", "inventory_file", "omit"}
)
"""Variables of Ansible itself that facts replace, in ansible-core 2.16 to 2.21."""
_SHOWN = 8
_LONGEST = 64
_IN_MEMORY = "memory"


def reserved(facts: Iterable[object]) -> list[str]:
    """The names among facts that only the operator, or Ansible, sets.

    :param facts: the names of facts, with or without the prefix ``ansible_``.
    """
    names = {str(name) for name in facts}
    return sorted(name for name in names if name.removeprefix("ansible_").startswith(PREFIX) or name in _MAGIC)


def facts_refusal(host: str, names: Sequence[str], cache: str) -> TaskResult:
    """The failed task of a host that sent reserved names.

    :param host: the inventory's name, as Ansible's variables have it: a fact may have replaced it.
    :param cache: Ansible's cache plugin (``CACHE_PLUGIN``). All but ``memory`` bring facts of earlier runs.
    """
    cached = "" if cache == _IN_MEMORY else f"; to remove facts of earlier runs ({cache}), add --flush-cache"
    shown = printable(listed([name[:_LONGEST] for name in names], _SHOWN))
    place = "this host" if "inventory_hostname" in names else host
    refused = finding(Code.FACTS_SET_VARIABLES, place=place, names=shown, cached=cached)
    text = f"{refused.code} {refused.place}: {refused.message}. To continue: {refused.remedy}"
    return {"failed": True, "msg": printable(text), "findings": printable_data([refused.to_dict()])}


def facts_refused(host: str, facts: Mapping[str, Any] | None, cache: str) -> TaskResult | None:
    """The failed task of a host whose facts have reserved names; None for other hosts.

    :param facts: Ansible's ``ansible_facts`` of the host.
    :param cache: Ansible's cache plugin.
    """
    names = reserved(facts or ())
    return facts_refusal(host, names, cache) if names else None
