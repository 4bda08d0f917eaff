"""Each playbook runs with exactly the variables that the README, the how-tos and the tutorials print.

CI runs a few; ``GPUSTACK_ATTACKS=1`` (``make attacks``) runs all, on the lowest and the newest ansible-core.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpustack.base.files import collection_dir
from support import warm
from support.lowest_ansible import environment_of, supported
from support.playbook_place import Place, environment

ROOT = Path(__file__).parents[3]
PAGES = (ROOT / "README.md", ROOT / "playbooks/README.md", *sorted((ROOT / "docs").rglob("*.md")))
COMMAND = re.compile(r"^ *[$#] (ansible-playbook -i (?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)
PLAYBOOK = re.compile(r"playbook path (\w+)|\$(\w+)|playbooks/(\w+)\.yml|passthrough\.(\w+)")
ELSEWHERE = (
    "gpustack_cloud=",
    "gpustack_image_",
    "gpustack_cleanup_",
    "gpustack_nova_snapshot=",
    "gpustack_trial=",
    "gpustack_root=",
)
"""Need a cloud, an image, databases, facts of other hosts (test_nova.py), a real GRUB or another root:
tests/nova/maintenance, tests/image,
tests/unit/attacks/test_image_root.py, tests/unit/repair/test_playbook.py, tests/unit/playbooks/test_trial.py,
tests/lab."""
SPEC = """\
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {talk: [k4200]}
nova: {release: "2025.2"}
"""
NOVA = {
    "etc/nova/nova.conf": "[DEFAULT]\ntransport_url = rabbit://nova:s3cret@mq\n",
    "usr/lib/systemd/system/nova-compute.service": "",
}


def printed() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each printed command once: its playbook and its variables, without ``--check``."""
    for page in PAGES:
        for command in COMMAND.findall(page.read_text(encoding="utf-8")):
            found = PLAYBOOK.search(command)
            assert found is not None, command
            words = shlex.split(command.replace("\\\n", " "))
            yield (
                next(filter(None, found.groups())),
                tuple(words[n + 1] for n, word in enumerate(words) if word == "-e"),
            )


PRINTED = sorted(run for run in set(printed()) if not any(word.startswith(ELSEWHERE) for word in run[1]))
VERSIONS = ("lowest", "newest")
RUNS = [
    (playbook, variables, version, check)
    for playbook, variables in PRINTED
    for version in VERSIONS
    for check in ((), ("--check", "--diff"))
    if supported(version)
]
if "GPUSTACK_ATTACKS" not in os.environ:
    RUNS = [run for run in RUNS if run[0] == "nova" and run[2] == "lowest" and not run[3]]


def test_every_playbook_is_printed() -> None:
    assert {playbook for playbook, _ in printed()} >= {"facts", "prepare", "verify", "undo", "nova", "cleanup", "image"}
    assert len(PRINTED) > 5


@pytest.mark.parametrize(("playbook", "variables", "version", "check"), RUNS)
def test_a_printed_command_runs(
    place: Place, prepared_place: Place, playbook: str, variables: tuple[str, ...], version: str, check: tuple[str, ...]
) -> None:
    """The inventory sets only what the test's machine needs: where the hosts are, and their groups."""
    used = prepared_place if playbook in ("verify", "undo") else place
    used.spec(SPEC)
    root = used.add("talk")
    if playbook == "nova":
        used.variables["talk"]["gpustack_command_prefix"] = ["true"]  # restarts nothing
    for path, text in NOVA.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    used.inventory()
    inventory = used.path / "inventory.json"
    inventory.write_text(inventory.read_text().replace('{"all"', '{"compute": {"hosts": {"talk": {}}}, "all"'))
    more = [word for variable in variables for word in ("-e", variable)]
    program = Path(sys.executable).with_name("ansible-playbook")
    process = warm.run(
        [str(program), "-i", str(inventory), str(collection_dir() / "playbooks" / f"{playbook}.yml"), *more, *check],
        cwd=used.path,
        env={**environment(used.path), **environment_of(version)},
    )
    assert process.returncode == 0, process.stdout + process.stderr
