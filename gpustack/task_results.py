"""The playbooks of gpustack 0.1.0 import this module: the import fails with both versions. Nothing else uses it."""

from gpustack import __version__


def __getattr__(name: str) -> object:
    from ansible.errors import AnsibleError

    raise AnsibleError(
        f"the playbooks are of gpustack 0.1.0, but gpustack {__version__} is installed; this task changed no host: "
        "run the playbooks in the directory that `gpustack playbook path` prints"
    )
