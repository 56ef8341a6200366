"""Faults of a service, or of a secret's source, have bounds, and no secret is shown."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from grete import Http, Table, json, utf8
from grete.api.sinks.sink import Owner
from grete.errors import ConfigError, TransientError
from grete.sinks.http import _ANSWER_BYTES_MAX, HttpSink
from grete.sinks.open import _resolved

Answers = Callable[[bytes, bytes], str]  # what is sent at once, and again and again → the url


@pytest.fixture
def answers() -> Iterator[Answers]:
    """Yield a function that starts a service which answers so to each connection, until that is ended."""
    ended, threads, listeners = threading.Event(), list[threading.Thread](), list[socket.socket]()

    def start(first: bytes, again: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve() -> None:
            while True:
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                try:
                    with connection:
                        connection.recv(1 << 16)
                        connection.sendall(first)
                        while again and not ended.wait(0 if len(again) > 100 else 0.02):
                            connection.sendall(again)
                except OSError:
                    pass  # the sink has had enough

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/hook"

    yield start
    ended.set()
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for thread in threads:
        thread.join()


def sink_of(url: str, **headers: str) -> HttpSink:
    """Return an open sink whose answers have little time."""
    sink = HttpSink("out", Http(url, utf8, timeout_ms=300, headers=headers))
    sink.open(Owner("job", "stage-0", "nonce"))
    sink.begin(1)
    return sink


@pytest.mark.timeout(20)  # else it waits for the end of the answer
@pytest.mark.parametrize(
    ("first", "again"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\n", b"X: 1\r\n"),
        (b"", b"H"),
    ],
)
def test_an_answer_that_drips_has_its_time_out_as_a_whole(first: bytes, again: bytes, answers: Answers) -> None:
    """Each byte comes in time, and the answer never ends: a task would not commit again."""
    sink = sink_of(answers(first, again))
    with pytest.raises(TransientError, match="does not answer"):
        sink.write([("out", b"a")])
    sink.close()


def test_an_answer_without_end_is_left(answers: Answers) -> None:
    """The status counts, and the connection is not used again."""
    body = b"10000\r\n" + 65_536 * b"x" + b"\r\n"
    sink = sink_of(answers(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", body))
    sink._timeout_s = 60.0  # the bound is that of the bytes
    sink.write([("out", b"a")])
    assert sink._connection is None
    assert _ANSWER_BYTES_MAX > len(body)


def test_a_secret_may_end_in_a_newline(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    """As each file does that somebody has made with an editor, and that is mounted as a variable."""
    url = answers(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"")
    monkeypatch.setenv("TOKEN", "Bearer canary\n")
    monkeypatch.setenv("PLACE", f"{url}\n")
    sink = sink_of("env:PLACE", Authorization="env:TOKEN")
    sink.write([("out", b"a")])
    sink.close()


@pytest.mark.parametrize("value", ["Bearer\ncanary", "Bearer canary\0", "Bearer\u2028canary", "canary\r\nX: 1\r\n"])
def test_a_secret_that_no_header_can_have_is_not_shown(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client would say it in its error, which the page, the screen and the log show."""
    declared = Http("http://127.0.0.1:1/", json, headers={"Authorization": "env:TOKEN"})
    monkeypatch.setattr("os.environ", {"TOKEN": value})
    with pytest.raises(ConfigError, match="environment variable TOKEN holds a newline within") as ended:
        HttpSink("out", declared)
    assert "canary" not in str(ended.value)


@pytest.mark.parametrize("url", ["http://host/a?token=ca nary", "http://host:canary/", "http://host/\u00e4?t=canary"])
def test_a_url_that_is_none_is_not_shown(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its query may be a secret."""
    monkeypatch.setenv("PLACE", url)
    with pytest.raises(ConfigError) as ended:
        HttpSink("out", Http("env:PLACE", json))
    assert "nary" not in str(ended.value)


def test_settings_of_a_database_are_not_taken_for_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a password, which would be the name of the file, and in each error."""
    table = Table("env:DB", "t", json, columns=["x"])
    monkeypatch.setenv("DB", "host=db user=me password=canary")
    with pytest.raises(ConfigError, match="environment variable DB holds no url of a database") as ended:
        _resolved(table)
    assert "canary" not in str(ended.value)
    monkeypatch.setenv("DB", "postgresql://db/shop\n")
    assert _resolved(table) == "postgresql://db/shop"
