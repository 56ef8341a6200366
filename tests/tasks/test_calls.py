"""Orders that get their prices from a service: in order, through crashes, and when the service fails."""

import pytest

from framework.testing import Kit
from tasks.calls import PriceOrders, job, orders, priced, refused
from tests.support.http_server import serving

PRICES = {"tea": 350, "salt": 90}


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
        errors = [dict(record.headers)["grete.error"].decode() for record in kit.outputs(refused)]
        assert errors[0] == "ValueError: there is no gold"
        assert errors[1].startswith("CallError: the call of price_of failed: HTTPError: HTTP Error 500")
        assert service.asked == {"tea": 3, "gold": 1, "down": 4}
