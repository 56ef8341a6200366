"""Orders that get their prices from a service: in order, through crashes, and when the service fails."""

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

import pytest

from grete.testing import Kit
from tasks.calls import PriceOrders, job, orders, priced, refused

PRICES = {"tea": 350, "salt": 90}


class Service:
    """Answers each request with what ``answer`` makes of the thing: (status, body). ``asked``: thing → requests."""

    def __init__(self, answer: Callable[[str], tuple[int, bytes]]) -> None:
        self.asked: Counter[str] = Counter()
        self.url = ""
        self._answer, self._lock = answer, Lock()

    def answer(self, thing: str) -> tuple[int, bytes]:
        """Count a request, and answer it."""
        with self._lock:
            self.asked[thing] += 1
            return self._answer(thing)


@contextmanager
def serving(answer: Callable[[str], tuple[int, bytes]]) -> Generator[Service, None, None]:
    """Run a service within the block."""
    service = Service(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = service.answer(self.path[1:])
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()


def test_orders_get_their_prices_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, through crashes; a thing whose price is known is not asked for."""
    with serving(lambda sku: (200, b"%d" % PRICES[sku])) as service:
        monkeypatch.setenv("PRICES", service.url)
        kit = Kit(job)
        for number in range(40):
            kit.feed(orders, str(number), {"sku": "tea" if number % 3 else "salt", "count": number})
        kit.run(crashes=5, seed=1)
        found = [(record.key, record.value["cents"]) for record in kit.outputs(priced)]
        assert found == [(str(n), n * (350 if n % 3 else 90)) for n in range(40)]
        assert kit.state(PriceOrders.prices) == PRICES
        asked = service.asked.total()
        kit.feed(orders, "later", {"sku": "tea", "count": 1})
        kit.run()
        assert service.asked.total() == asked


def test_a_service_that_fails_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An order of what there is none of is set aside at once, one whose price is not to be had after all attempts."""
    failed = iter([503, 503])

    def answer(sku: str) -> tuple[int, bytes]:
        if sku == "tea":
            return next(failed, 200), b"350"
        return (404 if sku == "gold" else 500), b""

    with serving(answer) as service:
        monkeypatch.setenv("PRICES", service.url)
        kit = Kit(job)
        for number, sku in enumerate(("tea", "gold", "down")):
            kit.feed(orders, str(number), {"sku": sku, "count": 1})
        kit.run()
        assert [record.key for record in kit.outputs(priced)] == ["0"]
        errors = [(dict(record.headers)["grete.error"] or b"").decode() for record in kit.outputs(refused)]
        assert errors[0] == "ValueError: there is no gold"
        assert errors[1].startswith("CallError: the call of price_of failed: HTTPError: HTTP Error 500")
        assert service.asked == {"tea": 3, "gold": 1, "down": 4}
