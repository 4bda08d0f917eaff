"""Inventories: hosts with the users of the command line, and this machine."""

import json
import platform
import sys
from pathlib import Path

from gpustack.connect.playbooks.inventory import inventory_of, inventory_of_this_machine, limit_of


def test_each_host_has_the_user_of_its_name() -> None:
    hosts = json.loads(inventory_of(["gpu01", "root@gpu02", "a@b@gpu03"]))["all"]["hosts"]
    assert hosts == {"gpu01": {}, "gpu02": {"ansible_user": "root"}, "gpu03": {"ansible_user": "a@b"}}


def test_this_machine_uses_a_python_outside_the_environment() -> None:
    ((name, variables),) = json.loads(inventory_of_this_machine())["all"]["hosts"].items()
    assert (name, variables["ansible_connection"]) == (platform.node(), "local")
    assert variables["ansible_python_interpreter"] == str(Path(sys.executable).resolve())


def test_a_limit_has_one_name_a_line() -> None:
    assert limit_of(["gpu01", "gpu02"]) == "gpu01\ngpu02\n"
    assert limit_of([]) == ""
