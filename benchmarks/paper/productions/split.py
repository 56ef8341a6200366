"""The first job: documents → postings, in a topic."""

from benchmarks.latency.job import PARTITIONS, RUN, Posting, Split
from benchmarks.paper.productions.running import stored_in
from grete import Job, Output, Topic, json, utf8

stored = Topic(stored_in(RUN), key=utf8, value=json(Posting))


class SplitStored(Split):
    """The first stage; the topic takes its outputs when they are committed."""

    name = "split"
    out = Output(stored)


job = Job(f"paper-split-{RUN}", stages=[SplitStored], partitions=PARTITIONS)
