"""Real Nova accepts and refuses the files of provider_config that gpustack accepts and refuses."""

from __future__ import annotations

import json
import subprocess

import pytest
import yaml

from gpustack.nova_options.provider_config import faults
from gpustack.nova_options.releases import release
from gpustack_demo.embedded.environment import ensure

NODE = 'meta: {schema_version: "1.0"}\nproviders:\n- identification: {uuid: $COMPUTE_NODE}\n'
TEXTS = (
    NODE,
    NODE + "  inventories: {additional: [{CUSTOM_A: {total: 1}}]}\n",
    NODE + "  inventories: {additional: [{VCPU: {total: 1}}]}\n",
    NODE + "  inventories: {additional: [{CUSTOM_A: {total: '1'}}]}\n",
    NODE + "  traits: {additional: [HW_CPU_X86_AVX]}\n",
    'meta: {schema_version: "2.0"}\n',
    "- a list\n",
)
PROGRAM = """\
import json, sys
from nova.compute import provider_config
for directory in json.load(sys.stdin):
    try:
        provider_config.get_provider_configs(directory)
        print(json.dumps(True))
    except Exception as error:
        print(json.dumps(False))
"""


@pytest.mark.parametrize("name", ["2025.2", "2026.2"])
def test_nova_has_the_same_verdict(name, tmp_path):
    for number, text in enumerate(TEXTS):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "a.yaml").write_text(text)
    environment = ensure(name)
    run = subprocess.run(
        [str(environment.program("python")), "-W", "ignore", "-c", PROGRAM],
        input=json.dumps([str(tmp_path / str(number)) for number in range(len(TEXTS))]),
        capture_output=True,
        text=True,
        check=True,
        env=environment.variables(),
    )
    accepted = [json.loads(line) for line in run.stdout.splitlines()]
    assert accepted == [not list(faults(yaml.safe_load(text), release(name))) for text in TEXTS]
    assert {True, False} == set(accepted)
