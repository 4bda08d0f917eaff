"""Every code, class and card has an explanation."""

from __future__ import annotations

from gpustack.base.findings import definitions
from gpustack.cli import explanation as texts
from gpustack.cli.explanation import of as explanation
from gpustack.pci import catalogue


def test_every_finding_and_card_is_explained():
    for code in definitions():
        assert f"{code} " in next(explanation(str(code)).lines)
    for card in catalogue.cards():
        assert next(explanation(f"{card.vendor}:{card.product}").lines).endswith(f"[{card.vendor}:{card.product}]")


def test_a_class_without_its_page(monkeypatch, tmp_path):
    monkeypatch.setattr("gpustack.cli.explanation.share_dir", lambda name: tmp_path)
    assert next(explanation("B").lines) == "# Class B (migration-pinned): pinned by a migration that ended in error"


def test_a_long_list_of_cards_is_cut(gpustack):
    lines = gpustack("explain", "nvidia").out.splitlines()
    assert len(lines) == texts._LISTED + 2
    assert lines[-1].startswith("and ")
