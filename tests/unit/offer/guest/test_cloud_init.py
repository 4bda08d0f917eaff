"""Vendor data in real cloud-init: beside the data of the user, and without a GPU."""

from __future__ import annotations

import grp
import json
import os
import pwd
from pathlib import Path

import pytest

from gpustack.hosts.health.kernel_log import table
from gpustack.offer.guest import check, vendordata
from gpustack.offer.guest.inside import console
from support import cloud_init
from support.guest_root import guest_root

pytestmark = pytest.mark.skipif(
    not cloud_init.is_present(),
    reason="cloud-init is missing: tools/setup --unpack cloud-init python3-configobj python3-six",
)
FLAVORS = {"g1.a100.2": check.Promise(count=2, ids=("10de:20b5",))}


def boot(root: Path, user_data: object, flavors: dict[str, check.Promise]) -> str:
    """Boot a guest whose vendor data has lists of the operator too; the text of its console."""
    (root / "dev/console").touch()
    (root / "run/cloud-init/instance-data-sensitive.json").unlink()  # cloud-init writes it
    owner = f"{pwd.getpwuid(os.getuid()).pw_name}:{grp.getgrgid(os.getgid()).gr_name}"  # by default root
    files = [{"path": f"{root}/vendor-file", "owner": owner}]
    lists = {"runcmd": [["touch", f"{root}/vendor-ran"]], "write_files": files}
    data = vendordata.render(flavors, {"cloud-init": f"#cloud-config\n{json.dumps(lists)}\n"})
    cloud_init.boot(root, json.loads(data), user_data, {"GPUSTACK_ROOT": str(root)})
    return (root / "dev/console").read_text()


def test_the_script_runs_beside_the_users_data(tmp_path: Path) -> None:
    """Lists of vendor cloud-config vanish if the user has the same key; the script does not."""
    root = guest_root(tmp_path, gpus=["10de:20b5"] * 2, driver="nvidia")
    log = boot(root, {"runcmd": [["touch", f"{root}/user-ran"]]}, FLAVORS)
    facts = console.facts(log, check.consoles(), table())
    assert list(check.findings(facts, FLAVORS["g1.a100.2"], "vm")) == []
    assert (facts["flavor"], len(facts["gpus"])) == ("g1.a100.2", 2)
    ran = {path.name for path in root.iterdir()}
    assert {"user-ran", "vendor-file"} <= ran
    assert "vendor-ran" not in ran


def test_a_guest_without_a_gpu_prints_nothing(tmp_path: Path) -> None:
    root = guest_root(tmp_path, gpus=[])
    assert boot(root, {}, {"another": check.Promise(count=1)}) == ""
    assert {"vendor-ran", "vendor-file"} <= {path.name for path in root.iterdir()}
