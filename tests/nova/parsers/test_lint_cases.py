"""What the linter says of its cases, Nova says too: it refuses them, or misreads them as the linter holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from gpustack.configure.sources import SERVICES, guessed
from gpustack_demo.embedded.environment import ensure
from gpustack_demo.embedded.releases import available
from support.nova_cases import Case, cases
from support.nova_judge import Judge

CASES = [case for case in cases() if "nova" in case.data]
CHOSEN = os.environ.get("GPUSTACK_NOVA_RELEASES", "2025.2 2026.2").split()
HERE = {entry.name for entry in available() if entry.name in CHOSEN or CHOSEN == ["all"]}
PAIRS = [
    (release, case)
    for release in ("2025.2", "2026.2", "yoga")
    for case in CASES
    if release in HERE and release in case.data.get("releases", ["2025.2", "2026.2"])
]


@pytest.fixture(scope="module")
def judges() -> Iterator[Callable[[str], Judge]]:
    """The judge of a release, started once: pytest starts a fixture again for each pair with a parameter of its own."""
    with ExitStack() as stack:
        yield cache(lambda release: stack.enter_context(Judge(ensure(release))))


def holds(case: Case, answer: dict) -> bool:
    """Whether Nova's answer is what the case claims."""
    claim = case.data["nova"]
    everything = [f.address for f in case.judged_on.pci]
    judged = {
        "refuses": lambda subject: bool(answer.get("parse_error" if subject == "file" else f"{subject}_error")),
        "refuses_option": lambda path: path in {refusal["option"] for refusal in answer["refused"]},
        "takes": lambda subject: not answer.get(f"{subject}_error"),
        "offered": lambda addresses: sorted(answer["offered"]) == addresses,
        "offers_all": lambda _: sorted(answer["offered"]) == sorted(everything),
        "shares": lambda shares: answer["shares"] == shares,
        "report": lambda value: answer["report"] is value,
        "compute": lambda claims: {key: answer["compute"][key] for key in claims} == claims,
        "lacks_filter": lambda _: "PciPassthroughFilter" not in answer["filters"],
    }
    return all(judged[subject](value) for subject, value in claim.items())


@pytest.mark.parametrize(("release", "case"), PAIRS, ids=lambda value: value if isinstance(value, str) else value.name)
def test_nova_agrees(judges, tmp_path, release, case):
    files = case.written(tmp_path)
    answer = judges(release).asked(files[:1], case.judged_on, services=guessed(files[0]) or SERVICES)
    assert holds(case, answer), answer
