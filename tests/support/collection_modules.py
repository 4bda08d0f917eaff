"""Modules and plugins of the collection, imported by the finder that Ansible has.

An import without it makes another package of the collection, in which a later test of the process finds nothing.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from ansible.plugins.loader import init_plugin_loader
from ansible.utils.collection_loader import AnsibleCollectionConfig

PLUGINS = "ansible_collections.nova_gpustack.passthrough.plugins."


def imported(name: str) -> ModuleType:
    """A module by its full name."""
    if name.startswith(PLUGINS) and not AnsibleCollectionConfig.collection_finder:
        init_plugin_loader()
    return importlib.import_module(name)
