"""The test kit: a whole job in one process, over log and stores in memory, in virtual time: deterministic, and quick.

It runs the real thing (core, driver, processor), so what passes here has been through claims, commits, restores and
rollbacks as they are in production:

    >>> from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
    >>> from grete.testing import Kit
    >>> sentences = Topic("sentences", key=utf8, value=utf8)
    >>> totals = Topic("word-totals", key=utf8, value=int64)
    >>> class CountWords(Task):
    ...     lines = Input(sentences)
    ...     counts = Store("counts", key=utf8, value=int64)
    ...     out = Output(totals)
    ...     def process(self, record: Record[str, str]) -> None:
    ...         for word in record.value.split():
    ...             n = self.counts.get(word, 0) + 1
    ...             self.counts.put(word, n)
    ...             self.out.send(word, n)
    >>> kit = Kit(Job("word-count", stages=[CountWords]))
    >>> kit.feed(sentences, "tale", "to be or not to be")
    >>> kit.process()                      # processed, and not committed: a reader sees nothing yet
    >>> kit.pairs(totals)
    []
    >>> kit.crash(CountWords)              # what it had done is rolled back, and is done again
    >>> kit.run()                          # until everything is committed
    >>> kit.pairs(totals)
    [('to', 1), ('be', 1), ('or', 1), ('not', 1), ('to', 2), ('be', 2)]
    >>> kit.crash(CountWords, other_host=True)  # an empty disk: the state comes back from the changelog
    >>> kit.feed(sentences, "tale", "or else")
    >>> kit.run()
    >>> kit.state(CountWords.counts)
    {'be': 2, 'else': 1, 'not': 1, 'or': 2, 'to': 2}

    >>> kit.check_crashes(at_most=10)      # the same feed with a crash behind ten of its steps: nothing differs
    10

``run(crashes=5, seed=1)`` crashes tasks at moments of the seed's choice while it runs: outputs and state must be what
they are without. ``grete.testing.strategies`` has what property tests draw, framework/pytest_plugin.py fixtures.
"""

from grete.testing.kit import Kit

__all__ = ["Kit"]
