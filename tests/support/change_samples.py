"""A genuine change of each kind, as a journal holds it."""

from __future__ import annotations

from typing import Any

from gpustack.operate.reclaim.notice import AFTER

LIMIT = {"resource_class": "CUSTOM_GPU", "project": "p", "description": "d", "model": "m", "project_name": "p"}
CLOSED = {"host": "h", "reason": "maintenance", "text": "", "left": ""}
REPAIR = {"cell": "c", "database": "u", "verdict": {}, "changes": [], "before": []}
VALID: dict[str, dict[str, Any]] = {
    "aggregate": {"seen": None, "wanted": {"gpustack:tenancy": "CUSTOM_X"}},
    "aggregate_host": {"seen": False, "wanted": True, "about": {"host": "h", "aggregate": "a"}},
    "aggregate_metadata": {"seen": {"gpustack:tenancy": None}, "wanted": {"gpustack:tenancy": "CUSTOM_X"}},
    "closed_host": {"seen": False, "wanted": True, "about": CLOSED},
    "flavor": {"seen": {"extra_specs": {"a": "b"}}, "wanted": {"extra_specs": {"a": None}}},
    "flavor_access": {"seen": {"p": False}, "wanted": {"p": True}},
    "image": {"seen": {"hw_machine_type": None, "owner": "p"}, "wanted": {"hw_machine_type": "q35", "owner": "p"}},
    "instance": {"seen": "ACTIVE on gpu1", "wanted": "SHUTOFF"},
    "limit": {"seen": 1, "wanted": 2, "about": LIMIT},
    "notice": {"seen": {AFTER: None}, "wanted": {AFTER: "x"}},
    "repair": {"seen": {"0000:01:00.0": "allocated"}, "wanted": {"0000:01:00.0": "available"}},
    "repair_undo": {"seen": {"0000:01:00.0": "available"}, "wanted": {"0000:01:00.0": "allocated"}},
    "reservation": {"seen": {"CUSTOM_A": 0}, "wanted": {"CUSTOM_A": 1}, "about": {"place": "gpu1"}},
    "shelving": {"seen": "SHUTOFF", "wanted": "SHELVED_OFFLOADED", "about": {"server": "s"}},
    "trait": {"seen": False, "wanted": True, "about": {"host": "h", "trait": "CUSTOM_X"}},
    "unshelving": {"seen": "SHELVED_OFFLOADED", "wanted": "SHUTOFF", "about": {"server": "s"}},
}
