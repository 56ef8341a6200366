"""Alerts and dashboards before a real Prometheus that scrapes a real job."""

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from docs.hooks.dashboards import DASHBOARDS, FOLDER, dashboard, text
from grete.errors import ConfigError
from grete.monitor.catalog import COMMIT_SECONDS, JOB_METRICS, TASK_METRICS, WORKER_METRICS
from grete.replay.audit.metrics import AUDIT_METRICS
from tests.monitor.alerts import FIRES, promtool_tests
from tests.monitor.test_server import UP, get, url_in
from tests.suite.tiers import NEEDS_NOTHING
from tests.support.debian import cache, unpack
from tests.support.waiting import until
from tests.worker.workers import LIMIT_S

ONLY_IN_TROUBLE = {"grete_worker_halted"}  # has samples
RULES = FOLDER.parent / "prometheus" / "alerts.yml"
SCRAPE = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: grete
    honor_labels: true
    static_configs: [{{targets: ["{target}"]}}]
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of prometheus and promtool: this machine's, or Debian's."""
    found = shutil.which("promtool")
    if found is not None and shutil.which("prometheus") is not None:
        return Path(found).parent
    root = tmp_path_factory.mktemp("prometheus")
    try:
        unpack("prometheus", cache("prometheus"), root)
    except ConfigError as error:
        pytest.fail(f"Prometheus cannot be had here: {error}. {NEEDS_NOTHING}", pytrace=False)
    return root / "usr" / "bin"


def promtool(programs: Path, *arguments: str) -> str:
    """Return the output of promtool; fail if it does."""
    done = subprocess.run(
        [programs / "promtool", *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.test  # starts Prometheus
def test_each_alert_fires_on_its_trouble_and_none_on_a_healthy_job(programs: Path, tmp_path: Path) -> None:
    """As promtool reckons, minute by minute; and a rule that is wrong is found."""
    tests = tmp_path / "tests.yml"
    tests.write_text(json.dumps(promtool_tests(str(RULES))))
    assert f"{len(FIRES)} rules found" in promtool(programs, "check", "rules", str(RULES))
    promtool(programs, "test", "rules", str(tests))
    assert set(re.findall(r"alert: (\w+)", RULES.read_text())) == set(FIRES)
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(RULES.read_text().replace("grete_sink_trouble == 1", "grete_sink_trouble == 2"))
    tests.write_text(json.dumps(promtool_tests(str(wrong))))
    with pytest.raises(AssertionError, match="GreteSinkRefuses"):
        promtool(programs, "test", "rules", str(tests))


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_is_what_its_table_says(name: str) -> None:
    """Else: python -m docs.hooks.dashboards."""
    assert (FOLDER / f"{name}.json").read_text("utf-8") == text(name)


@pytest.mark.test
def test_promtool_takes_the_configuration_that_compose_mounts(programs: Path, tmp_path: Path) -> None:
    """With the alerts where they are mounted."""
    mounted = (RULES.parent / "prometheus.yml").read_text().replace("/etc/prometheus/alerts.yml", str(RULES))
    (tmp_path / "prometheus.yml").write_text(mounted)
    assert "SUCCESS" in promtool(programs, "check", "config", str(tmp_path / "prometheus.yml"))


@contextmanager
def scraping(programs: Path, directory: Path, target: str) -> Iterator[str]:
    """Run Prometheus over a job; yield the address at which it is asked."""
    (directory / "prometheus.yml").write_text(SCRAPE.format(rules=RULES, target=target))
    log = directory / "prometheus.log"
    command = [str(programs / "prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    command += ["--web.listen-address=127.0.0.1:0"]
    with log.open("wb") as out, subprocess.Popen(command, cwd=directory, stdout=out, stderr=out) as process:
        try:
            found = until(lambda: re.search(r"Listening on.*address=(127\.0\.0\.1:\d+)", log.read_text()))
            yield f"http://{found[1]}"
        finally:
            process.kill()


def asked(url: str, query: str) -> list[Any]:
    """Return the result of a query, nothing while Prometheus starts. Fail if it refuses the query."""
    status, body = get(url, f"/api/v1/query?{urllib.parse.urlencode({'query': query})}")
    if status == 503:
        return []
    assert status == 200, (query, body)
    found: list[Any] = json.loads(body)["data"]["result"]
    return found


@pytest.mark.test
@pytest.mark.timeout(900)
def test_every_panel_and_alert_has_data_of_a_job_that_runs(programs: Path, tmp_path: Path) -> None:
    """Each query of the dashboards is answered, and each metric of an alert is there."""
    lines = tmp_path / "lines.txt"
    lines.write_text("to be or not to be\n")
    place = f"--directory={tmp_path / 'job'}"
    run = [sys.executable, "-m", "grete.cli", "run", "tasks.word_count", place, f"--input=sentences={lines}"]
    subprocess.run(run, check=True, timeout=LIMIT_S, capture_output=True)
    shown = tmp_path / "up.txt"
    with shown.open("wb") as out, subprocess.Popen([*UP, place], stdout=out, stderr=out) as up:
        try:
            target = until(lambda: url_in(shown)).removeprefix("http://")
            with scraping(programs, tmp_path, target) as url:
                until(lambda: asked(url, "grete_task_running == 1"))
                queries = {each["expr"] for name in DASHBOARDS for panel in dashboard(name)["panels"]
                           for each in panel["targets"]}  # fmt: skip
                for query in sorted(queries):
                    until(partial(asked, url, query.replace("$job", ".*")))
                named = set(re.findall(r"grete_[a-z_]+", RULES.read_text() + " ".join(queries)))
                audits = {each.name for each in AUDIT_METRICS}  # of a process of its own
                known = {each.name for each in (*TASK_METRICS, *WORKER_METRICS, *JOB_METRICS)} | audits
                known.add(f"{COMMIT_SECONDS}_bucket")
                assert named <= known
                for name in sorted(named - ONLY_IN_TROUBLE - audits):
                    assert asked(url, name), f"nothing scraped is called {name}"
                (state,) = asked(url, 'count(up{job="grete"} == 1)')
                assert state["value"][1] == "1"
            up.send_signal(signal.SIGTERM)
            assert up.wait(LIMIT_S) == 0
        finally:
            up.kill()
