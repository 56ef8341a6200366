"""The expected results of the jobs, computed by Spark over the whole input. No code of a job is imported here.

``fed`` has the input: topic, partition, offset, key, value (as text; none: nothing that can be decoded), at (ms). A
query is one kind of result; its rows are compared in any order.
"""

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.spark.backlog.feeds import Fed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = Counter[str]  # each as JSON

_CREDIT = "least(60000L, s.credit + greatest(r.at - s.at, 0L))"  # ms: a request takes 12,000 of at most 60,000
QUERIES: dict[str, dict[str, str]] = {
    "visits": {
        "visits": """
            SELECT key, array_sort(collect_list(value)), (max(at) - min(at)) DIV 1000
            FROM fed GROUP BY key, session_window(timestamp_millis(at), '1800001 milliseconds')"""
    },
    "interval_join": {
        "results": """
            SELECT o.key, o.value || ': ' || coalesce('paid by ' || p.value, 'not paid'), greatest(o.at, p.at)
            FROM fed o LEFT JOIN fed p
            ON p.topic = 'payments' AND p.key = o.key AND p.at BETWEEN o.at AND o.at + 600000
            WHERE o.topic = 'orders'"""
    },
    "billing": {
        "bills": """
            WITH priced AS (
                SELECT o.key, ordered:number::bigint AS number, ordered:pieces::bigint * p.value::bigint AS cents,
                       row_number() OVER (PARTITION BY o.partition, o.offset ORDER BY p.at DESC) AS age
                FROM (SELECT *, parse_json(value) AS ordered FROM fed WHERE topic = 'orders') o
                JOIN fed p ON p.topic = 'prices' AND p.key = o.key AND p.at <= o.at)
            SELECT key, number, cents FROM priced WHERE age = 1 AND cents IS NOT NULL"""
    },
    "once_a_day": {
        "notices": """
            WITH met AS (
                SELECT *, max(at) OVER (PARTITION BY partition ORDER BY offset
                                        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS time FROM fed),
            told AS (SELECT key, value, min_by(at, offset) AS at FROM met GROUP BY key, value)
            SELECT * FROM told UNION ALL
            SELECT key, value, min_by(met.at, offset) FROM met JOIN told USING (key, value)
            WHERE time >= told.at + 86400000 GROUP BY key, value"""
    },
    "rate_limit": {
        "requests": f"""
            WITH all AS (SELECT key, array_sort(collect_list(struct(offset, at, value))) AS rows FROM fed GROUP BY key)
            SELECT key, each.value, each.allowed FROM all LATERAL VIEW explode(aggregate(
                rows,
                named_struct('credit', 60000L, 'at', rows[0].at,
                             'told', cast(array() AS array<struct<value: string, allowed: boolean>>)),
                (s, r) -> named_struct(
                    'credit', {_CREDIT} - if({_CREDIT} >= 12000, 12000L, 0L),
                    'at', greatest(s.at, r.at),
                    'told', concat(s.told, array(named_struct('value', r.value, 'allowed', {_CREDIT} >= 12000)))),
                s -> s.told)) AS each"""
    },
    "top_pages": {
        "rankings": """
            WITH counted AS (SELECT at DIV 60000 AS minute, key, count(*) AS views FROM fed GROUP BY 1, 2),
            placed AS (
                SELECT *, row_number() OVER (PARTITION BY minute ORDER BY views DESC, key DESC) AS place FROM counted)
            SELECT minute, array_sort(collect_list(struct(place, key))).key FROM placed WHERE place <= 3 GROUP BY minute
            """
    },
    "dead_letters": {
        "large": "SELECT key, cents FROM (%s) WHERE cents >= 100000",
        "refused": "SELECT partition, offset, key, value FROM (%s) WHERE cents IS NULL OR cents <= 0",
    },
    "sinks": {
        "table": "SELECT key, max_by(parse_json(value):pieces::bigint, offset) FROM fed GROUP BY key",
        "archive": "SELECT key, parse_json(value):pieces::bigint FROM fed",
    },
    "registry": {
        "totals": """
            SELECT key, sum(value::bigint) OVER (PARTITION BY key ORDER BY offset) FROM fed WHERE value IS NOT NULL""",
        "refused": "SELECT partition, offset, key FROM fed WHERE value IS NULL",
        "state": "SELECT key, sum(value::bigint) FROM fed WHERE value IS NOT NULL GROUP BY key",
    },
    "calls": {
        "priced": "SELECT key, cents * ordered:count::bigint FROM (%s) WHERE cents IS NOT NULL",
        "refused": "SELECT partition, offset, key FROM (%s) WHERE cents IS NULL",
        "state": "SELECT sku, min(cents) FROM (%s) WHERE cents IS NOT NULL GROUP BY sku, partition",
    },
}
_SHARED = {  # what both queries of a job begin with
    "dead_letters": """
        SELECT *, if(schema_of_variant(found:customer) = 'STRING' AND schema_of_variant(found:cents) = 'BIGINT',
                     found:cents::bigint, NULL) AS cents
        FROM (SELECT *, try_parse_json(value) AS found FROM fed)""",
    "calls": """
        SELECT *, if(number % 50 = 0, NULL, 100 + 7 * number % 1000) AS cents
        FROM (SELECT *, ordered:sku::string AS sku, substring(ordered:sku::string, 6)::bigint AS number
              FROM (SELECT *, parse_json(value) AS ordered FROM fed))""",
}


def in_batch(spark: "SparkSession", name: str, fed: Sequence[Fed]) -> dict[str, Rows]:
    """Return each kind of result that a job must give."""
    offsets, numbers = Counter[tuple[str, int]](), list[int]()
    for row in fed:
        numbers.append(offsets[row[:2]])
        offsets[row[:2]] += 1
    topics, partitions, keys, _, times, shown = zip(*fed, strict=True)
    columns = {"topic": topics, "partition": partitions, "offset": numbers, "key": keys, "value": shown, "at": times}
    table = pa.table({label: pa.array(column) for label, column in columns.items()})
    spark.createDataFrame(table).createOrReplaceTempView("fed")
    queries = QUERIES[name].items()
    asked = {what: query % _SHARED[name] if name in _SHARED else query for what, query in queries}
    return {what: rows_of(map(list, spark.sql(query).collect())) for what, query in asked.items()}


def rows_of(rows: Any) -> Rows:
    """Return rows in the form in which they are compared."""
    return Counter(json.dumps(row) for row in rows)
