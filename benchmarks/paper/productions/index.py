"""The second job: postings, of the topic → the index."""

from benchmarks.latency.job import PARTITIONS, RUN
from benchmarks.paper.job import Index
from benchmarks.paper.productions.split import stored
from grete import Input, Job


class IndexStored(Index):
    """The second stage; the topic has only what is committed."""

    name = "index"
    found = Input(stored)


job = Job(f"paper-{RUN}", stages=[IndexStored], partitions=PARTITIONS)
