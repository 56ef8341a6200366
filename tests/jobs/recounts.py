"""Inputs of the eight jobs, and a plain recount of each: what it should have kept and sent, by a loop over all."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from types import ModuleType
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from grete import Store, Topic
from grete.api.serdes.key import partition_by
from tests.jobs import billing, budgets, devices, fraud, matching, orders, router, tables
from tests.state.moving_host import ReadJob

BEGIN_MS = 1_709_251_200_000  # 2024-03-01
HOUR_MS = 3_600_000

Given = tuple[Topic[Any, Any], Any, Any, int]  # topic, key, value, timestamp


class Recount(NamedTuple):
    """The state that a job should have, by store, and its outputs: by topic the values of each key in their order."""

    state: dict[str, dict[Any, Any]]
    outputs: dict[Topic[Any, Any], dict[Any, list[Any]]]


def _orders(rng: random.Random) -> tuple[list[Given], Recount]:
    given: list[Given] = []
    state, told = dict[Any, str](), defaultdict[Any, list[str]](list)
    openings, placings = Counter[str](), Counter[Any]()
    for n in range(240):
        customer, order = f"c{n % 15}", f"o{n % 60}"
        what = rng.choice(["placed", "paid", "paid", "shipped"]) if n >= 60 else "placed"
        given += [(orders.steps, customer, orders.Step(f"step {n}", order, what), BEGIN_MS + n)] * rng.choice((1, 2))
        before, state[customer, order] = state.get((customer, order)), what
        if before == what:
            told[customer, order].append(f"{what} twice")
        elif what == "placed":
            openings[customer] += 1
            placings[customer, order] += 1
        elif what == "shipped":
            openings[customer] -= 1
            told[customer, order].append("shipped")
    for key, what in state.items():  # a day later, for each time that it was placed
        told[key] += ["reminded"] * (placings[key] if what == "placed" else 0)
    return given, Recount({"orders": state, "open": dict(openings)}, {orders.told: told})


def _tables(rng: random.Random) -> tuple[list[Given], Recount]:
    given: list[Given] = []
    names, states, cents = dict[str, str](), dict[Any, str](), dict[Any, int]()
    for n in range(240):
        customer, order, at = f"c{rng.randrange(12)}", rng.randrange(4), BEGIN_MS + n
        kind = rng.randrange(5)
        if kind == 0:
            names[customer] = f"Name {n}"
            given.append((tables.customers, customer, {"name": names[customer]}, at))
        elif kind == 1:
            states[customer, order] = rng.choice(["open", "open", "cancelled"])
            given.append((tables.orders, (customer, order), {"state": states[customer, order]}, at))
        else:
            line = customer, order, rng.randrange(3)
            if kind == 2 and line in cents:
                del cents[line]
                given.append((tables.items, line, None, at))
            else:
                cents[line] = n
                given.append((tables.items, line, {"cents": n}, at))
    totals: dict[str, list[Any]] = {}
    for customer in {key if isinstance(key, str) else key[0] for _, key, _, _ in given}:
        open_ = {order for order, state in states.items() if order[0] == customer and state != "cancelled"}
        total = sum(each for line, each in cents.items() if line[:2] in open_)
        totals[customer] = [(names.get(customer), total)]
    return given, Recount({"names": names, "states": states, "cents": cents}, {tables.totals: totals})


def _billing(rng: random.Random) -> tuple[list[Given], Recount]:
    zones = ["Europe/Vienna", "America/New_York", "Asia/Kolkata", "Pacific/Auckland"]
    given, units, all_days = list[Given](), Counter[Any](), Counter[str]()
    for n in range(300):
        account, at, more = f"a{n % 13}", BEGIN_MS + n * HOUR_MS, rng.randrange(1, 9)
        zone = zones[(n % 13) % 4]
        given.append((billing.usage, account, (zone, more), at))
        day = datetime.fromtimestamp(at / 1000, UTC).astimezone(ZoneInfo(zone)).date().isoformat()
        units[account, day] += more
        all_days[account] += more
    bills = {key: [count] for key, count in units.items()}
    return given, Recount({"billed": dict(all_days)}, {billing.bills: bills})


def _devices(rng: random.Random) -> tuple[list[Given], Recount]:
    given = list[Given]()
    sketches, sites, hours = dict[Any, list[int]](), dict[str, list[int]](), Counter[Any]()
    for n in range(600):
        site, device, reading, at = f"s{n % 11}", rng.randrange(4_500), rng.randrange(1 << 16), BEGIN_MS + n * 60_000
        given.append((devices.readings, (site, device), reading, at))
        sketches[site, device] = devices.with_reading(sketches.get((site, device)), reading)
        sites[site] = devices.with_reading(sites.get(site), reading)
        hours[(site, device), at // HOUR_MS] += 1
    busy = defaultdict[Any, list[int]](list)
    for (key, _), count in sorted(hours.items()):
        busy[key].append(count)
    return given, Recount({"devices": sketches, "sites": sites}, {devices.busy: busy})


def _budgets(rng: random.Random) -> tuple[list[Given], Recount]:
    given, of_model, in_all = list[Given](), Counter[Any](), Counter[str]()
    answers: dict[str, list[str]] = {}
    for n in range(300):
        customer, model, tokens = f"c{rng.randrange(14)}", rng.choice(["large", "small"]), rng.randrange(1, 90)
        given.append((budgets.wanted, customer, (f"r{n}", model, tokens), BEGIN_MS + n))
        allowed = of_model[customer, model] + tokens <= budgets.OF_MODEL and in_all[customer] + tokens <= budgets.IN_ALL
        if allowed:
            of_model[customer, model] += tokens
            in_all[customer] += tokens
        answers[f"r{n}"] = ["allowed" if allowed else "refused"]
    assert {"allowed", "refused"} == {answer for (answer,) in answers.values()}
    return given, Recount({"of-model": dict(of_model), "in-all": dict(in_all)}, {budgets.answers: answers})


def _matching(rng: random.Random) -> tuple[list[Given], Recount]:
    given, trades = list[Given](), defaultdict[str, list[Any]](list)
    books: dict[str, list[list[Any]]] = defaultdict(list)  # of orders: side, price, number, pieces
    numbers = Counter[str]()
    for n in range(400):
        symbol, side = f"SYM{rng.randrange(9)}", rng.choice(["buy", "sell"])
        price, pieces = rng.randrange(95, 106), rng.randrange(1, 20)
        given.append((matching.orders, symbol, (side, price, pieces), BEGIN_MS + n))
        numbers[symbol] += 1
        best = 1 if side == "buy" else -1
        against = [order for order in books[symbol] if order[0] != side and best * order[1] <= best * price]
        for order in sorted(against, key=lambda order: (best * order[1], order[2])):
            traded = min(pieces, order[3])
            if traded:
                trades[symbol].append([order[1], traded])
            pieces, order[3] = pieces - traded, order[3] - traded
        books[symbol] = [order for order in books[symbol] if order[3]]
        if pieces:
            books[symbol].append([side, price, numbers[symbol], pieces])
    book = {
        (symbol, side, price if side == "sell" else -price, number): pieces
        for symbol, of_symbol in books.items()
        for side, price, number, pieces in of_symbol
    }
    return given, Recount({"book": book, "numbers": dict(numbers)}, {matching.trades: trades})


def _router(rng: random.Random) -> tuple[list[Given], Recount]:
    given, counts = list[Given](), Counter[Any]()
    sent: dict[str, dict[Any, list[str]]] = {"errors": defaultdict(list), "others": defaultdict(list)}
    for n in range(300):
        host, level = f"host{n % 16}", rng.choice(["info", "warning", "error"])
        line = "boot", n // 16, level, f"line {n}"
        given += [(router.lines, host, line, BEGIN_MS + n)] * rng.choice((1, 1, 3))
        counts[host, level] += 1
        sent["errors" if level == "error" else "others"][host].append(f"line {n}")
    outputs: dict[Topic[Any, Any], Any] = {router.errors: sent["errors"], router.others: sent["others"]}
    return given, Recount({"counts": dict(counts)}, outputs)


def _fraud(rng: random.Random) -> tuple[list[Given], Recount]:
    given, payments, features = list[Given](), defaultdict[str, list[Any]](list), defaultdict[str, list[Any]](list)
    merchants, countries = Counter[Any](), dict[Any, int]()
    for n in range(300):
        card, merchant, country = f"card{rng.randrange(17)}", rng.choice("mnop"), rng.choice(["AT", "IT", "JP"])
        cents, at = rng.randrange(1, 500), BEGIN_MS + n * 240_000
        given.append((fraud.payments, card, fraud.Payment(merchant, country, cents), at))
        merchants[card, merchant] += 1
        countries[card, country] = at
        payments[card].append((at, cents))
        recent = sum(each for when, each in payments[card] if when > at - HOUR_MS)
        seen_in = sum(1 for of, _ in countries if of == card)
        features[card].append([merchants[card, merchant], recent, seen_in])
    spent = {
        (card, when): cents for card, paid in payments.items() for when, cents in paid if when > paid[-1][0] - HOUR_MS
    }
    state: dict[str, dict[Any, Any]] = {"merchants": dict(merchants), "countries": countries, "spent": spent}
    return given, Recount(state, {fraud.features: features})


JOBS: dict[ModuleType, Callable[[random.Random], tuple[list[Given], Recount]]] = {
    orders: _orders,
    tables: _tables,
    billing: _billing,
    devices: _devices,
    budgets: _budgets,
    matching: _matching,
    router: _router,
    fraud: _fraud,
}


def check(job: ReadJob, of: ModuleType, recount: Recount) -> None:
    """Compare what a job has kept and sent with the recount, byte by byte."""
    stores: list[Store[Any, Any]] = [store for stage in job.job.stages for store in stage.stores.values()]
    assert _kept(job) == {
        store.name: {store.key.encode(k): store.value.encode(v) for k, v in recount.state[store.name].items()}
        for store in stores
    }
    for topic, expected in recount.outputs.items():
        found = _sent(job, topic)
        assert found.keys() == {topic.key.encode(key) for key, values in expected.items() if values}
        for key, values in expected.items():
            raw = [topic.value.encode(value) for value in values]
            last = len(raw) if of is not tables else 1  # its three inputs have no order among them
            assert found.get(topic.key.encode(key), [])[-last:] == raw[-last:] or not raw, key


def _kept(job: ReadJob) -> dict[str, dict[bytes, bytes]]:
    """Return the entries of the stores, all of which are where their keys belong."""
    found: dict[str, dict[bytes, bytes]] = {}
    for number, stage in enumerate(job.job.stages):
        ids = {each: store for store in stage.stores.values() for each in (stage.store_ids()[store.name],)}
        for partition in range(stage.partitions):
            for (of, key), value in job.state(partition, number).items():
                if (store := ids.get(of)) is not None:
                    assert partition_by(store.key)(key, stage.partitions) == partition, (store.name, key)
                    assert found.setdefault(store.name, {}).setdefault(key, value) is value, f"{key!r} is there twice"
        for store in stage.stores.values():
            found.setdefault(store.name, {})
    return found


def _sent(job: ReadJob, topic: Topic[Any, Any]) -> dict[bytes, list[bytes]]:
    """Return the values that were sent, by key; an output topic has as many partitions as the job.

    What was sent before the rescale is in another partition than the rest of its key, or before it there.
    """
    count, place = job.job.partitions, partition_by(topic.key)
    found: dict[bytes, list[tuple[bool, int, bytes]]] = {}
    for number in range(count):
        for row in job.rows_in(topic.name, number):
            assert row.key is not None
            assert row.value is not None
            found.setdefault(row.key, []).append((place(row.key, count) == number, row.offset, row.value))
    return {key: [value for _, _, value in sorted(rows)] for key, rows in found.items()}
