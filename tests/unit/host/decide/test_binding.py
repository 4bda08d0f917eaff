"""What is hard to write as a case: many ids, and that every finding of the plan's range is shown by a test."""

from __future__ import annotations

from pathlib import Path

import yaml

from gpustack.findings import definitions
from gpustack.host.plan import plan_host
from gpustack.spec.load import parse_spec
from support.boot_simulation import Machine
from support.host_samples import changed, snapshot

HERE = Path(__file__).parents[1]


def test_more_ids_than_the_kernel_keeps_are_refused() -> None:
    count = 110
    cards = {
        f"0000:{0x20 + n // 8:02x}:{n % 8:02x}.0": {
            "vendor": "10de",
            "product": f"{0x2000 + n:04x}",
            "class": "030000",
            "modules": ["nouveau"],
            "driver": "nouveau",
            "reset_methods": ["bus"],
        }
        for n in range(count)
    }
    models = {f"m{n}": {"match": {"vendor": "10de", "product": f"{0x2000 + n:04x}"}} for n in range(count)}
    spec = parse_spec(yaml.safe_dump({"version": 1, "models": models, "hosts": {"gpu01": list(models)}}), "test")
    plan = plan_host(spec, Machine(changed(snapshot("k4200"), {"pci": cards})).host)
    assert [f.code for f in plan.findings if f.severity == "error"] == ["GPU116"]
    assert "1099 characters" in plan.findings[0].message


def test_every_finding_of_the_plan_and_of_the_verification_is_shown_by_a_test() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (*HERE.glob("cases/*.yaml"), *HERE.rglob("test_*.py"))]
    text = "\n".join(texts)
    assert [code for code in definitions() if code.startswith(("GPU1", "GPU2")) and code not in text] == []
