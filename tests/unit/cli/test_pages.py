"""Addresses of pages: of the project's documentation, or of one's own copy; none where neither is known."""

from __future__ import annotations

import importlib.metadata
from email.message import Message

import pytest

from gpustack.cli import pages


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(pages.VARIABLE, raising=False)
    monkeypatch.setattr(pages, "_published", pages._published.__wrapped__)


def published(monkeypatch: pytest.MonkeyPatch, *urls: str) -> None:
    metadata = Message()
    for url in urls:
        metadata["Project-URL"] = url
    monkeypatch.setattr(importlib.metadata, "metadata", lambda name: metadata)


def test_the_project_url_of_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    published(monkeypatch, "Source, https://git.example", "Documentation, https://docs.example/latest")
    assert pages.finding("GPU112") == "https://docs.example/latest/reference/findings/gpu112.html"


def test_the_variable_goes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    published(monkeypatch, "Documentation, https://docs.example")
    monkeypatch.setenv(pages.VARIABLE, "file:///srv/docs/")
    assert pages.page("runbook/class-b.html") == "file:///srv/docs/runbook/class-b.html"


def test_no_address_is_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    published(monkeypatch)
    assert pages.page("reference/generated/cards.html") is None
