"""Records of all partitions, the latest first, by key, time and error; and the command that sends letters again."""

import shlex
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import given
from hypothesis import strategies as st
from selenium.webdriver.common.keys import Keys

from grete.job.dead_letters import redriven
from grete.job.loader import load_job
from grete.job.topics import create_topics
from grete.logs.delegating import DelegatingReader
from grete.logs.embedded import EmbeddedLog
from grete.logs.embedded.reader import EmbeddedReader
from grete.logs.kafka.read.reader import KafkaReader
from grete.logs.memory import MemoryLog, MemoryLogData
from grete.monitor.page.browse import ROWS_MAX, Browse
from grete.monitor.page.job_graph import graph_of
from grete.monitor.page.page import Page
from grete.monitor.page.search import SearchBounds, SearchStep, search
from grete.monitor.server import Monitor, serving
from grete.ports import ExternalRecord, LogRow
from grete.protocol.frames import encode_headers
from grete.protocol.ids import TopicPartition
from grete.quoting import HIDDEN, ShowRecords
from grete.settings import Settings
from grete.testing.broker import Broker
from tests.monitor.conftest import JOB, SECRET, asked
from tests.monitor.test_server import get
from tests.support.browser import Browser
from tests.support.kafka_topics import create
from tests.support.shown import showing
from tests.worker.workers import LIMIT_S

DAY_MS = 1_793_491_200_000  # 2026-11-01
LETTERS = 300
KEYS = "ann", "bob's; echo", "ç — d", "x\ty"


def letter(number: int) -> ExternalRecord:
    """Return the letter of a record; of some the error has a value in it."""
    error = f"KeyError: {number}" if number % 3 else f"ValueError: {SECRET} {number}"
    told = {"error": error, "stage": "split", "topic": "lines", "source": f"lines[{number % 2}]", "offset": str(number)}
    headers = encode_headers([(f"grete.{name}", text.encode()) for name, text in told.items()])
    key, value = KEYS[number % len(KEYS)].encode(), f"to be {number}".encode()
    return ExternalRecord(TopicPartition("refused", number % 2), key, value, DAY_MS + 60_000 * number, headers)


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """The directory of a job with letters in two partitions, one of each minute of some hours."""
    place = tmp_path / "job"
    place.mkdir()
    with closing(EmbeddedLog(place / "log.db")) as log:
        create_topics(load_job(JOB), log)
        log.open_metadata("word-count").produce_with_meta([letter(number) for number in range(LETTERS)], {})
    return place


@contextmanager
def served(place: Path, show: ShowRecords = "all") -> Iterator[str]:
    """Serve the page of the job in a directory; yield its address."""
    job = load_job(JOB)
    command = ["grete", "dlq", "redrive", JOB, f"--directory={place}"]

    def opened() -> EmbeddedReader:
        return EmbeddedReader(place / "log.db")

    browse = Browse(job, place / "state", opened, redrive=command)
    monitor = Monitor(60, Page(graph_of(job, Settings(show_records=show)), browse))
    with showing(show), serving(monitor, "0") as url:
        yield url


def found(url: str, **asks: str) -> tuple[list[int], str]:
    """Return the numbers of all letters that match, page by page, and the command for them."""
    numbers: list[int] = []
    page: Any = {"next": ""}
    while page["next"] is not None:
        after = page["next"]
        page = asked(url, "/page/letters.json?" + urllib.parse.urlencode({"topic": "refused", **asks, "after": after}))
        assert len(page["rows"]) <= ROWS_MAX
        numbers += [int(row["told"]["offset"]) for row in page["rows"]]
    return numbers, page["command"]


def test_letters_of_all_partitions_come_the_latest_first(filled: Path) -> None:
    """Each once, page by page; key, error, time and partition choose, together."""
    newest = list(reversed(range(LETTERS)))
    with served(filled) as url:
        assert found(url)[0] == newest
        assert found(url, partition="1")[0] == [n for n in newest if n % 2]
        assert found(url, key="ann")[0] == [n for n in newest if n % 4 == 0]
        assert found(url, key="x\\ty")[0] == [n for n in newest if n % 4 == 3]  # as it is shown
        assert found(url, error="KeyError: 1")[0] == [n for n in newest if n % 3 and str(n).startswith("1")]
        between = {"from": "2026-11-01 01:00:00Z", "to": "2026-11-01T03:30+01:00"}
        assert found(url, **between)[0] == list(reversed(range(60, 150)))
        assert found(url, **between, key="ann", error=SECRET)[0] == [n for n in range(149, 59, -1) if n % 12 == 0]
        assert found(url, key="nobody's")[0] == []
        rows = asked(url, f"/page/topic.json?topic=refused&key={urllib.parse.quote(KEYS[2])}&to=2026-11-01T00:10")[
            "rows"
        ]
        assert [(row["partition"], row["offset"], row["key"]) for row in rows] == [(0, 3, KEYS[2]), (0, 1, KEYS[2])]


def test_the_command_of_a_filter_sends_its_letters_and_no_other(filled: Path) -> None:
    """It is typed into a shell as it is shown: what a shell would take for something else is quoted."""
    (filled.parent / "grete").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m grete.cli "$@"\n')
    (filled.parent / "grete").chmod(0o755)
    sent: set[int] = set()
    with served(filled) as url:
        for asks in (
            {"key": KEYS[1], "from": "2026-11-01T04:00"},
            {"error": f"Error: {SECRET} 1", "partition": "0"},
            {"to": "2026-11-01 00:05:00Z", "key": "x\\ty"},
            {},
        ):
            numbers, command = found(url, **asks)
            assert not asks or 0 < len(numbers) < LETTERS / 3
            shell = ["sh", "-c", f"PATH={shlex.quote(str(filled.parent))}:$PATH; {command}"]
            done = subprocess.run(shell, capture_output=True, text=True, timeout=LIMIT_S, check=False)
            sent |= set(numbers)
            assert done.returncode == 0, done.stderr
            assert sent_again(filled) == sent, command
            assert marked(url) == sent
    assert len(sent) == LETTERS


def marked(url: str) -> set[int]:
    """Return the numbers of the letters that the page marks as sent again."""
    page: Any = {"next": ""}
    numbers: set[int] = set()
    while page["next"] is not None:
        page = asked(url, f"/page/letters.json?topic=refused&after={urllib.parse.quote(page['next'])}")
        numbers |= {int(row["told"]["offset"]) for row in page["rows"] if row.get("again")}
    return numbers


def sent_again(place: Path) -> set[int]:
    """Return the numbers of the letters that were sent again."""
    with closing(EmbeddedReader(place / "log.db")) as log:
        done = [redriven(log, TopicPartition("refused", number)) for number in range(2)]
    return {number for number in range(LETTERS) if number // 2 in done[number % 2]}


def test_where_values_are_hidden_no_search_finds_them(filled: Path) -> None:
    """An error may quote one: only its class is compared, as a whole, and the command says the same. Keys are found."""
    with served(filled, "keys") as url:
        for text in (SECRET, SECRET[:1], "ValueError: s", "Value", "0"):
            assert found(url, error=text)[0] == []
        numbers, command = found(url, error="ValueError")
        assert numbers == [n for n in reversed(range(LETTERS)) if n % 3 == 0]
        assert command.endswith("--where=dlq=refused --where=class=ValueError")
        assert found(url, key="ann")[0]
        assert SECRET not in str(asked(url, "/page/letters.json?topic=refused"))


def test_where_keys_are_hidden_no_search_finds_them(filled: Path) -> None:
    """Neither of letters nor of records; without a key they are listed, and no row has one."""
    with served(filled, "none") as url:
        for path in (
            "letters.json?topic=refused&key=ann",
            "topic.json?topic=refused&key=ann",
            "state.json?store=counts",
        ):
            code, body = get(url, f"/page/{path}")
            assert (code, b"show_records is none" in body) == (400, True), path
        rows = asked(url, "/page/letters.json?topic=refused")["rows"]
        assert {row["key"] for row in rows} == {HIDDEN}
        assert asked(url, "/page/graph.json")["show_records"] == "none"


def test_dlq_refuses_a_time_that_is_none(filled: Path) -> None:
    """The error says how to write one, before anything is read."""
    run = [sys.executable, "-m", "grete.cli", "dlq", "show", JOB, f"--directory={filled}", "-n", "1000", "--where"]
    done = subprocess.run([*run, "from=noon"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert "from=noon: this is no time: write one such as 2026-11-01" in " ".join(done.stderr.split())
    assert done.returncode == 2
    shown = subprocess.run([*run, "from=2026-11-01T04:58"], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert shown.stdout.count("traceback") == 0
    assert [line for line in shown.stdout.splitlines() if line.startswith("refused")] == [
        "refused[0] offset 149",
        "refused[1] offset 149",
    ]


def log_of(times: list[list[int]], apart: int = 1) -> MemoryLog:
    """Return a log of a topic: of each partition the times of its rows, at every ``apart``-th offset."""
    data = MemoryLogData(lambda: 0)
    log = MemoryLog(data)
    log.create_topic("t", len(times))
    for number, part in enumerate(times):
        rows = [LogRow(apart * place, 0, ms, b"k", b"v" * 50, None) for place, ms in enumerate(part)]
        data.partition(TopicPartition("t", number)).rows += rows
    return log


@given(
    times=st.lists(
        st.lists(st.integers(0, 50)) | st.integers(0, 300).map(lambda n: [*range(n)]), min_size=1, max_size=5
    ),
    apart=st.sampled_from([1, 3, 40]),
    bounds=st.builds(SearchBounds, st.integers(1, 9), st.integers(1, 90), st.sampled_from([1, 2_000, 1 << 20])),
)
def test_steps_at_any_bounds_read_each_row_once(times: list[list[int]], apart: int, bounds: SearchBounds) -> None:
    """A step continues where the one before has stopped: nothing is missed, nothing comes twice, and each gets on."""
    log = log_of(times, apart)
    places = [TopicPartition("t", number) for number in range(len(times))]
    seen: list[tuple[int, int]] = []
    read, after = 0, ""
    while True:
        step = search(log, places, after, odd, bounds)
        assert len(step.found) <= bounds.found
        seen += step.found
        read += step.read
        if step.next is None:
            break
        assert step.next != after
        after = step.next
    assert read == sum(map(len, times))
    wanted = {(n, apart * place) for n, part in enumerate(times) for place, ms in enumerate(part) if ms % 2}
    assert len(seen) == len(wanted)
    assert set(seen) == wanted
    for number in range(len(times)):
        own = [offset for place, offset in seen if place == number]
        assert own == sorted(own, reverse=True)


def odd(at: TopicPartition, row: LogRow) -> tuple[int, int] | None:
    """Return the place of a row with an odd time."""
    return (at.partition, row.offset) if row.timestamp_ms % 2 else None


def test_a_step_without_a_match_ends_at_its_bound() -> None:
    """It looks at as many rows as it may, of many partitions, too, and reads few more; then it says where to go on."""
    log = Counting(log_of([[*range(1_000)] for _ in range(64)]))
    places = [TopicPartition("t", number) for number in range(64)]
    step: SearchStep[int] = search(log, places, "", lambda _at, _row: None, SearchBounds(seconds=LIMIT_S))
    assert (step.found, step.next is None) == ([], False)
    assert 20_000 <= step.read < 30_000
    assert sum(map(int, (step.next or "").split("."))) == 64_000 - step.read
    assert log.rows < 2 * step.read


def test_large_rows_are_read_a_few_at_once() -> None:
    """A step ends at its bound of bytes, though each partition has more than that just before its end."""
    big = LogRow(0, 0, 5, b"k", b"v" * 400_000, None)
    log = log_of([[5] * 64] * 8)
    for number in range(8):
        part = log.data.partition(TopicPartition("t", number))
        part.rows = [big._replace(offset=offset) for offset in range(64)]
    counting = Counting(log)
    places = [TopicPartition("t", number) for number in range(8)]
    bounds = SearchBounds(bytes=4 << 20)
    step = search(counting, places, "", lambda _at, row: row.offset, bounds)
    assert step.found
    assert step.next is not None
    assert counting.bytes < 5 * bounds.bytes


class Counting(DelegatingReader):
    """A log that counts what is read."""

    rows = bytes = 0

    def read(self, partition: TopicPartition, offset: int, max_bytes: int) -> list[LogRow]:
        """Count what the log gives."""
        found = super().read(partition, offset, max_bytes)
        self.rows += len(found)
        self.bytes += sum(len(row.value or b"") for row in found)
        return found


@pytest.mark.kafka
def test_on_kafka_steps_pass_over_the_marks_of_transactions(kafka_broker: Broker) -> None:
    """Each transaction takes an offset at its end, and one that was given up is not shown; each row comes once."""
    topic = f"search-{uuid4().hex[:8]}"
    create(AdminClient({"bootstrap.servers": kafka_broker.bootstrap}), NewTopic(topic, 3, 1))
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for number in range(60):
        producer.begin_transaction()
        producer.produce(topic, b"v", str(number).encode(), number % 3, timestamp=DAY_MS + number)
        if number >= 50:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    places = [TopicPartition(topic, number) for number in range(3)]
    seen: list[int] = []
    with closing(KafkaReader.connect(kafka_broker.bootstrap)) as log:
        after: str | None = ""
        while after is not None:
            step = search(log, places, after, lambda _at, row: int(row.key or b""), SearchBounds(found=20))
            seen += step.found
            after = step.next
    assert seen == list(reversed(range(50)))


OFFSETS = "return [...document.querySelectorAll('tbody th')].map((each) => each.textContent)"


@pytest.mark.browser
def test_letters_are_chosen_in_the_browser_and_the_command_is_copied(filled: Path, browser: Browser) -> None:
    """By key and error, with a page of older ones; a click copies the command, as a paste shows."""
    browser.sized(1200)
    with served(filled) as url:
        browser.open(f"{url}/#/letters")
        browser.shows("100 records read, of 2 partitions; there are older ones.", "KeyError: 299", "Letter 1/149")
        browser.click("#next")
        browser.shows("KeyError: 199", "The latest")
        browser.find("#key").send_keys(KEYS[1])
        browser.find("#error").send_keys(SECRET)
        browser.find("#from").send_keys("2026-11-01T04:00", Keys.ENTER)
        browser.shows("300 records read, of 2 partitions; there are no older ones.", f"{SECRET} 297")
        shown = browser.script("return [...document.querySelectorAll('main h3')].map((each) => each.textContent)")
        assert shown == [f"ValueError: {SECRET} {n}" for n in range(299, 239, -1) if n % 12 == 9]
        browser.click("summary:has(+ p + pre #command)")
        browser.find("#copy").click()
        browser.until(lambda: browser.find("#copy").text == "Copied")
        browser.find("#key").clear()
        browser.find("#key").send_keys(Keys.CONTROL, "v")
        assert (
            browser.find("#key").get_attribute("value")
            == found(url, key=KEYS[1], error=SECRET, **{"from": "2026-11-01T04:00"})[1]
        )
        browser.open(f"{url}/#/topics?topic=refused&from=noon")
        browser.shows("This could not be read", "from=noon: this is no time")
        browser.open(f"{url}/#/topics?topic=refused&key=ann&to=2026-11-01T00:10")
        browser.until(lambda: browser.script(OFFSETS) == ["4", "2", "0"])
        browser.open(f"{url}/#/topics?topic=refused&key=nowhere")
        browser.shows("300 records read", "Nothing here.")
        browser.sized(390)
        browser.open(f"{url}/#/letters?key=ann")
        assert "sent again" not in browser.shows("Send these again")
        assert browser.width() <= 390
        command = shlex.split(found(url, key="ann", **{"from": "2026-11-01T04:00"})[1])
        subprocess.run([sys.executable, "-m", "grete.cli", *command[1:]], check=True, timeout=LIMIT_S)
        browser.open(f"{url}/#/letters?key=ann")
        browser.shows("sent again")
