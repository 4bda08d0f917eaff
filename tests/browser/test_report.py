"""The page of ``gpustack report`` in Chromium: nothing scrolls sideways, and a link opens the row that it leads to.

Chromium is large, so CI does not install it: ``make browser`` runs these tests. CI checks the same pages as text, in
tests/unit/operate/report.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpustack.fleet.model import Gap, Source
from gpustack.operate.report.page import Report, flavor_row, write
from gpustack.operate.report.topologies import Topologies
from support.fleets import fleet_of, fleet_on, hostile
from support.pci_layouts import dgx1, hgx, machine

CHROMIUM = ("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom")
FRAME = """<!DOCTYPE html><style>iframe {{ width: {width}px; height: 900px; border: 0 }}</style>
<iframe src="page/index.html{fragment}"></iframe>
<pre id="result"></pre><script>
addEventListener("load", () => setTimeout(() => {{
  const view = document.querySelector("iframe").contentDocument;
  const root = view.documentElement;
  for (const details of view.querySelectorAll("details")) if ({open}) details.open = true;
  const wide = [...view.querySelectorAll("body *")].filter((element) =>
    element.getBoundingClientRect().right > root.clientWidth + 1 && !element.closest(".wide"));
  const target = view.querySelector(":target");
  document.getElementById("result").textContent = JSON.stringify({{
    overflow: root.scrollWidth - root.clientWidth,
    wide: wide.slice(0, 5).map((element) => element.outerHTML.slice(0, 200)),
    seen: target ? target.getBoundingClientRect().height > 0 : null,
    rules: view.styleSheets.length,
  }});
}}, 500));
</script>
"""
HOSTS = tuple(
    built.model_copy(update={"hostname": name}) for name, built in (("dgx", machine(*dgx1())), ("hgx", machine(*hgx())))
)
LIMITS = "32 GPUs free, none in a group of 8\n8 GPUs: service disabled (gpu0001, gpu0002, gpu0003 and 12 more)"
FLAVOR = flavor_row(("a100-8.extra-large", "8 a100", "at least 2", "at least 19", LIMITS))
page = partial(Report, at=datetime.fromisoformat("2026-11-22T18:04:05"))
REPORTS = {
    "small": page(fleet=fleet_of(6), flavors=[FLAVOR]),
    "topology": page(fleet=fleet_on(*HOSTS), topologies=Topologies(HOSTS)),
    "large": page(fleet=fleet_of(200, 16)),
    "hostile": page(fleet=hostile(), cloud="x" * 200),
    "partial": page(fleet=replace(fleet_of(2), partial=(Gap(source=Source.NOVA, reason="y" * 300),))),
}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A directory that is served on loopback: scripts may look into a frame of the same server only."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield tmp_path, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def seen(site: tuple[Path, str], name: str, width: int, fragment: str = "", *, is_open: bool = True) -> dict[str, Any]:
    """The measures of a page in a frame of this width."""
    directory, url = site
    write(REPORTS[name], directory / "page")
    text = FRAME.format(width=width, fragment=fragment, open=json.dumps(is_open))
    (directory / "frame.html").write_text(text, encoding="utf-8")
    profile = f"--user-data-dir={directory / 'profile'}"
    command = [*CHROMIUM, profile, "--window-size=1400,1000", f"{url}/frame.html"]
    document = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    result = re.search(r'<pre id="result">(.+?)</pre>', document)
    assert result, document[-2000:]
    measures: dict[str, Any] = json.loads(html.unescape(result[1]))
    return measures


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", REPORTS)
def test_nothing_scrolls_sideways(site: tuple[Path, str], name: str, width: int) -> None:
    measures = seen(site, name, width)
    assert (measures["overflow"], measures["wide"]) == (0, [])
    assert measures["rules"] == 1  # the policy admits the style sheet


def test_link_of_the_map_opens_the_row(site: tuple[Path, str]) -> None:
    assert seen(site, "large", 1280, "#g3000", is_open=False)["seen"] is True
