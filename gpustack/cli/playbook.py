"""``gpustack playbook …``: the Ansible playbooks that come with gpustack."""

from __future__ import annotations

import argparse

from gpustack.cli.common import ShowOne
from gpustack.errors import GpustackError
from gpustack.files import share_dir


class Path(ShowOne):
    """Print where the playbooks, their roles and the templates are.

    ``ansible-playbook -i inventory "$(gpustack playbook path -f value -c playbooks)/prepare.yml" …`` runs them from
    wherever gpustack is installed.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The directories, each of which must be there."""
        playbooks, templates = share_dir("playbooks"), share_dir("templates")
        directories = {"playbooks": playbooks, "roles": playbooks / "roles", "templates": templates}
        for name, path in directories.items():
            if not path.is_dir():
                raise GpustackError(
                    f"the {name} are missing from this installation",
                    where=str(path),
                    remedy="install gpustack again (pip install --force-reinstall nova-gpustack)",
                )
        return tuple(directories), tuple(map(str, directories.values()))
