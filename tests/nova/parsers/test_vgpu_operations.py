"""The operations with vGPUs that gpustack's table has, beside Nova's own code."""

from __future__ import annotations

import re

import pytest

from gpustack.base.files import data_table
from gpustack_demo.embedded.environment import ensure
from support.clouds import NAMED


@pytest.mark.parametrize("name", NAMED)
def test_the_table_has_the_versions_and_methods_of_novas_code(name: str) -> None:
    (path,) = ensure(name).path.glob("lib/python*/site-packages/nova/virt/libvirt/driver.py")
    code = path.read_text(encoding="utf-8")
    for entry in data_table("vgpu_operations.toml")["operation"]:
        file, _, names = entry["source"].partition(": ")
        assert file == "nova/virt/libvirt/driver.py"
        for words in re.split(r", | \((?=self|mdevs)", names):
            assert words.removesuffix("))") in code, words
        for part in {"libvirt", "qemu"} & entry.keys():
            version = ", ".join(entry[part].split("."))
            assert f"MIN_MDEV_LIVEMIG_{part.upper()}_VERSION = ({version})" in code
