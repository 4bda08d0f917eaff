"""Compare what `host results` joins from plans of slices with `host plan` of the fleet."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpustack.cli.app import main


def printed(*words: str | Path) -> str:
    """What a command prints on stdout; plans may be refused."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
        code = main(list(map(str, words)))
    assert code in (0, 13), errors.getvalue()
    return out.getvalue()


def differences(spec: Path, snapshot: Path, records: Path) -> list[str]:
    """Hosts with other results, and plans with another text."""
    plans = {
        plan["host"]: plan for plan in json.loads(printed("host", "plan", spec, "--snapshot", snapshot, "-f", "json"))
    }
    results = {result["host"]: result for result in json.loads(printed("host", "results", records, "-f", "json"))}
    found = sorted({*plans} ^ {*results})
    found += [name for name in {*plans} & {*results} if of_plan(plans[name]) != of_result(results[name])]
    whole, joined = printed("host", "plan", spec, "--snapshot", snapshot), printed("host", "results", records)
    texts = {text for text in blocks(whole) if ": refused because" not in text.partition("\n")[0]}
    assert texts, whole
    return [*found, *sorted(texts - set(blocks(joined)))]


def of_plan(plan: Mapping[str, Any]) -> Sequence[object]:
    errors = sorted(finding["code"] for finding in plan["findings"] if finding["severity"] == "error")
    if plan["refused"]:
        return ["refused", errors]
    return ["planned" if plan["operations"] else "nothing to do", plan["reboot"], len(plan["operations"])]


def of_result(result: Mapping[str, Any]) -> Sequence[object]:
    errors = sorted(finding["code"] for finding in result["findings"] if finding["severity"] == "error")
    if result["outcome"] == "refused":
        return ["refused", errors]
    return [result["outcome"], result["reboot"], Counter(result["operations"]).total()]


def blocks(text: str) -> list[str]:
    """The texts of groups of hosts and the total, without its GPUs: results do not count them."""
    return [re.sub(r"^(Total: .*?), \d+ GPUs?", r"\1", part.strip()) for part in re.split(r"\n\n(?=\S)", text)]
