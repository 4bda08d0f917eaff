"""gpustack's commands, called in a repository that somebody else writes to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.playbook_place import Place

SECRET = "s3cret-of-the-operator"
DIRECTORIES = (
    *("library", "roles/gpustack/library", "module_utils"),
    *(f"{kind}_plugins" for kind in ("action", "callback", "connection", "filter", "inventory", "lookup", "vars")),
)
MODULES = ("yaml", "ansible", "json", "jinja2", "gpustack_facts", "gpustack_verify", "gpustack_events", "sitecustomize")


def hostile(repository: Path, mark: Path) -> None:
    """Files of every name that Python or Ansible may look for in the current directory; each notes that it ran."""
    code = f"open({str(mark)!r}, 'a').write(__file__ + '\\n')\n"
    for directory in (".", *DIRECTORIES):
        (repository / directory).mkdir(parents=True, exist_ok=True)
        for name in MODULES:
            (repository / directory / f"{name}.py").write_text(code, encoding="utf-8")
    tasks = repository / "roles/gpustack/tasks/verify.yml"
    tasks.parent.mkdir(parents=True)
    tasks.write_text(f"- ansible.builtin.shell: echo role >> {mark}\n", encoding="utf-8")
    (repository / "group_vars").mkdir()
    (repository / "group_vars/all.yml").write_text("gpustack_root: /of/the/repository\n", encoding="utf-8")
    lines = [f"{d.removesuffix('s').removesuffix('_plugin')}_plugins = ./{d}" for d in DIRECTORIES if "_plugins" in d]
    lines += ["callbacks_enabled = yaml, json", "library = ./library", "roles_path = ./roles"]
    (repository / "ansible.cfg").write_text("\n".join(["[defaults]", *lines, ""]), encoding="utf-8")


def test_nothing_of_the_current_directory_is_run(place: Place) -> None:
    place.add("talk")
    place.inventory()
    repository, mark, home = place.path / "repository", place.path / "mark", place.path / "home"
    home.mkdir()
    (home / ".ansible.cfg").write_text("[defaults]\nforks = 3\n", encoding="utf-8")
    hostile(repository, mark)
    (repository / "gpustack.yaml").write_bytes((place.path / "gpustack.yaml").read_bytes())
    log = place.path / "the.log"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
    process = subprocess.run(
        [
            *(sys.executable, "-m", "gpustack", "host", "verify", "gpustack.yaml"),
            *("-i", str(place.path / "inventory.json"), "--log", str(log)),
            *("-e", f"password={SECRET} gpustack_why='two words'", "-e", f'{{"other": "{SECRET}"}}'),
        ],
        cwd=repository,
        env={**inherited, "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 16, process.stderr  # it was read, and is not prepared
    assert "talk: not ready" in process.stdout
    assert not mark.exists(), mark.read_text(encoding="utf-8")
    assert f"Ansible configuration: {home}/.ansible.cfg" in process.stderr
    assert (
        f"{repository}/ansible.cfg: skipped; to use it, set ANSIBLE_CONFIG={repository}/ansible.cfg" in process.stderr
    )
    assert SECRET not in log.read_text(encoding="utf-8")
