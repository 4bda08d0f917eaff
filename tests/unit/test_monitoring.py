"""Alert rules and dashboard fit the metrics: promtool tests the rules, a real Prometheus answers the dashboard."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from gpustack.base.files import data_dir
from gpustack.base.prometheus import Page
from gpustack.fleet.index import Answers
from gpustack.fleet.join import join
from gpustack.fleet.metrics import families
from gpustack.fleet.model import Source
from gpustack.fleet.placement import Consumer
from gpustack.novadb.sources import Sources
from gpustack.operate.capacity.metrics import families as flavors
from gpustack.operate.capacity.model import Capacity, Demand
from gpustack.repair import metrics, plan
from gpustack.repair.plan import Selection
from gpustack_demo.embedded.process import free_port
from support.cellfile import CellFile
from support.fleet_answers import device, server
from support.prometheus_programs import find, program, promtool

ALERTS = data_dir("monitoring") / "alerts.yml"
DASHBOARD = json.loads((data_dir("monitoring") / "dashboard.json").read_text(encoding="utf-8"))
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "monitor-the-fleet.md"
SERIES = Path(__file__).parent / "data" / "alerts.yml"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]
]
TARGETS: list[dict[str, str]] = [target for panel in DASHBOARD["panels"] for target in panel["targets"]]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> list[Metric]:
    """The metrics of a fleet with an instance, and of clean-up with a stale row."""
    place = tmp_path_factory.mktemp("metrics")
    vm = server("vm1", "gpu1", since=datetime.fromisoformat("2026-01-02T03:04"))
    held = Consumer(uuid="vm1", project="p1", user="u1", devices={"gpu1-81": 1})
    cards = (device("gpu1", 0x81, used=1), device("gpu1", 0x82))
    fleet = join(Answers(devices=cards, servers=(vm,), consumers={"vm1": held}, projects={"p1": "research"}))
    demand = Demand(flavor="g1", gpus={"k4200": 1}, amounts={}, vcpus=1, ram=1024)
    of_flavors = flavors([Capacity(demand=demand, least=1, most=1, free=1)])
    of_gpus = families(fleet, (Source.NOVA, Source.PLACEMENT), 1.8e9, 1)
    cell = CellFile(f"sqlite:///{place}/cell.sqlite")
    cell.device(cell.host("gpu1"), "0000:82:00.0", "allocated", instance_uuid="gone", request_id="x")
    metrics.write(place / "cleanup.prom", plan.make(Sources.from_url(cell.url), Selection()))
    return [
        *of_gpus,
        *of_flavors,
        *text_string_to_metric_families((place / "cleanup.prom").read_text(encoding="utf-8")),
    ]


@pytest.mark.parametrize("name", ["prometheus", "promtool"])
def test_the_programs_are_installed(name: str) -> None:
    assert find(name), f"{name} is missing, and its tests are skipped: tools/setup --unpack prometheus"


def test_every_alert_fires_when_it_should(tmp_path: Path) -> None:
    assert promtool("check", "rules", ALERTS).returncode == 0
    series = yaml.safe_load(SERIES.read_text(encoding="utf-8"))
    complete = tmp_path / "test.yml"
    complete.write_text(yaml.safe_dump({**series, "rule_files": [str(ALERTS)]}), encoding="utf-8")
    checked = promtool("test", "rules", complete)
    assert checked.returncode == 0, checked.stdout


def test_each_alert_is_tested_firing_and_silent() -> None:
    series = yaml.safe_load(SERIES.read_text(encoding="utf-8"))
    expected = {(of["alertname"], bool(of["exp_alerts"])) for test in series["tests"] for of in test["alert_rule_test"]}
    assert expected == {(rule["alert"], fires) for rule in RULES for fires in (True, False)}


def used_labels(expression: str) -> set[str]:
    """The labels that an expression matches, groups by or joins on."""
    matched = re.findall(r"[{,]\s*(\w+)\s*(?:=~|!~|!=|=)", expression)
    listed = re.findall(r"\b(?:by|on|group_left|without|ignoring)\s*\(([^)]*)\)", expression)
    return {*matched, *(label.strip() for names in listed for label in names.split(",") if label.strip())}


@pytest.mark.parametrize(
    ("expression", "labels"),
    [
        *((rule["expr"], re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"]))) for rule in RULES),
        *((of["expr"], re.findall(r"\{\{(\w+)\}\}", of.get("legendFormat", ""))) for of in TARGETS),
        *(
            (match[1], [match[2]])
            for variable in DASHBOARD["templating"]["list"]
            if (match := re.fullmatch(r"label_values\((\w+), (\w+)\)", variable.get("definition", "")))
        ),
    ],
)
def test_the_exporter_has_these_metrics_and_labels(published: list[Metric], expression: str, labels: list[str]) -> None:
    known = {sample.name: set(sample.labels) for metric in published for sample in metric.samples}
    names = set(re.findall(r"\bgpustack_\w+", expression))
    assert names
    assert names <= known.keys()
    assert {*used_labels(expression), *labels} <= set().union(*(known[name] for name in names))


def test_the_queries_of_the_page_are_valid(published: list[Metric], tmp_path: Path) -> None:
    known = {sample.name for metric in published for sample in metric.samples}
    text = PAGE.read_text(encoding="utf-8")
    expressions = re.findall(r"```promql\n(.+?)```", text, re.DOTALL)
    assert expressions
    assert set(re.findall(r"\bgpustack_\w+\b(?!\*)", " ".join(expressions))) <= known
    rules = [{"record": "of:page", "labels": {"n": str(n)}, "expr": expr} for n, expr in enumerate(expressions)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "page", "rules": rules}]}))
    checked = promtool("check", "rules", tmp_path / "rules.yml")
    assert checked.returncode == 0, checked.stdout


def test_the_page_lists_all_metrics_and_alerts(published: list[Metric]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    names = {sample.name for metric in published for sample in metric.samples}
    missing = [name for name in names if f"`{name}`" not in page and not name.startswith("gpustack_cleanup_")]
    assert missing == []
    labels = {name for metric in published if "cleanup" not in metric.name for s in metric.samples for name in s.labels}
    assert [name for name in labels if f"`{name}`" not in page] == []
    severities = dict(re.findall(r"`(\w+)`(?=[^|]*\|)[^|]*\| (critical|warning|info) \|", page))
    assert [rule["alert"] for rule in RULES if f"`{rule['alert']}`" not in page] == []
    assert severities.items() <= {rule["alert"]: rule["labels"]["severity"] for rule in RULES}.items()


@pytest.fixture(scope="module")
def prometheus(published: list[Metric], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that scrapes these metrics."""
    page = Page(published)
    place = tmp_path_factory.mktemp("prometheus")
    port = free_port()
    exporter = f"127.0.0.1:{page.serve('127.0.0.1', 0)}"
    configuration = {
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [{"job_name": "gpustack", "static_configs": [{"targets": [exporter]}]}],
    }
    (place / "prometheus.yml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
    command = [
        program("prometheus"),
        f"--config.file={place / 'prometheus.yml'}",
        f"--storage.tsdb.path={place / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (place / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            started = Prometheus(f"http://127.0.0.1:{port}")
            deadline = time.monotonic() + 180
            while not started.scraped():
                assert process.poll() is None, (place / "log").read_text()
                assert time.monotonic() < deadline, (place / "log").read_text()
                time.sleep(0.1)
            yield started
        finally:
            process.terminate()


@dataclass
class Prometheus:
    """A running Prometheus. Queries are for the time of one successful scrape: a later scrape may fail.

    :ivar time: the time of the scrape, as Prometheus writes it; empty for now.
    """

    address: str
    time: str = ""

    def query(self, expression: str) -> list[Any]:
        """The series that an expression results in."""
        parameters = {"query": expression, **({"time": self.time} if self.time else {})}
        address = f"{self.address}/api/v1/query?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=120) as answer:  # noqa: S310 - of this test
            result: list[Any] = json.load(answer)["data"]["result"]
        return result

    def scraped(self) -> bool:
        """Whether a scrape was successful; sets the time of queries."""
        try:
            series = self.query("timestamp(gpustack_collect_success)")
        except OSError as error:  # not started yet
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            return False
        self.time = series[0]["value"][1] if series else ""
        return bool(series)


def test_a_real_prometheus_scrapes_every_sample(prometheus: Prometheus, published: list[Metric]) -> None:
    (up,) = prometheus.query("up")
    assert up["value"][1] == "1"
    (count,) = prometheus.query('count({__name__=~"gpustack_.+"})')
    assert int(count["value"][1]) == sum(len(metric.samples) for metric in published)


def test_every_panel_of_the_dashboard_has_data(prometheus: Prometheus) -> None:
    expressions = {of["expr"].replace("$hostname", ".*").replace("$model", ".*") for of in TARGETS}
    assert not [expression for expression in expressions if "$" in expression]
    assert [expression for expression in expressions if not prometheus.query(expression)] == []


def test_projects_have_names_in_the_dashboard(prometheus: Prometheus) -> None:
    (expression,) = (of["expr"] for of in TARGETS if "gpustack_tenant_info" in of["expr"])
    (series,) = prometheus.query(expression.replace("$model", ".*"))
    assert series["metric"] == {"tenant": "research", "tenant_id": "p1"}
    assert series["value"][1] == "1"
