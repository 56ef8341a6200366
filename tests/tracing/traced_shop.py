"""A traced job whose spans go to a file, a JSON object a line: workers are killed, and what was written stays."""

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from grete import Input, Job, Output, Record, Store, Task, Topic, TraceIds, int64, utf8

lines = Topic("lines", key=utf8, value=utf8)
words = Topic("words", key=utf8, value=utf8)
out = Topic("out", key=utf8, value=utf8)


class File(SpanExporter):
    """Appends each span when it ends."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with Path(os.environ.get("SPANS", os.devnull)).open("a") as file:
            for span in spans:
                assert span.context is not None
                parent = 0 if span.parent is None else span.parent.span_id
                told = [span.name, span.context.trace_id, span.context.span_id, parent]
                file.write(json.dumps(told) + "\n")
        return SpanExportResult.SUCCESS


if "SPANS" in os.environ and not isinstance(trace.get_tracer_provider(), TracerProvider):
    provider = TracerProvider(id_generator=TraceIds())  # type: ignore[arg-type]  # it has its methods
    provider.add_span_processor(SimpleSpanProcessor(File()))
    trace.set_tracer_provider(provider)


class Split(Task):
    lines = Input(lines)
    out = Output(words)

    def process(self, record: Record[str | None, str]) -> None:
        for word in record.value.split():
            self.out.send(word, record.value)


class Count(Task):
    words = Input(words)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(out)

    def process(self, record: Record[str, str]) -> None:
        n = self.counts.get(record.key, 0) + 1
        self.counts.put(record.key, n)
        if record.key == "log":
            logging.getLogger("shop").warning("seen")
        self.out.send(record.key, f"{n}")


job = Job("traced", [Split, Count], partitions=2, mode="deterministic")
