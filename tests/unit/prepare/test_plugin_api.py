"""What the roles read of a result is among its keys."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_type_hints

import pytest

from gpustack.configure.plugin_api import NovaHostResult
from gpustack.prepare.plugin_api import HostPlanResult, ServiceResult, TrialState

ROLES = Path(__file__).parents[3] / "playbooks" / "roles"
READ = {
    "gpustack_planned": HostPlanResult,
    "gpustack_planned.trial": TrialState,
    "gpustack_nova_wanted": NovaHostResult,
    "gpustack_in_service": ServiceResult,
}


@pytest.mark.parametrize("variable", READ)
def test_roles_read_keys_that_results_have(variable: str) -> None:
    texts = [path.read_text(encoding="utf-8") for path in ROLES.rglob("*.yml")]
    reads = {key for text in texts for key in re.findall(rf"\b{re.escape(variable)}\.(\w+)", text)}
    assert reads
    assert reads - get_type_hints(READ[variable]).keys() == set()
