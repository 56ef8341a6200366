"""The commits from which deterministic tasks can be run again, so that none lacks what another has sent."""

from collections.abc import Mapping

from grete.protocol.commit import Commit


def follows(commit: Commit, begins: Mapping[int, Commit], *, timed: bool) -> bool:
    """Tell whether all records, and if they count all watermarks, that the producers will not make again are in it."""
    assert commit.deterministic is not None
    upto = {(f.topic, f.partition, f.producer): f.t for f in commit.deterministic.frontiers}
    for entry in commit.inputs:
        for channel in entry.channels:
            begin = begins[channel.producer]
            sent = {(o.topic, o.partition): o.next_seq for o in begin.outputs}
            if channel.seq < sent[entry.topic, entry.partition] - 1:
                return False
            if timed and upto[entry.topic, entry.partition, channel.producer] < _told_upto(begin):
                return False
    return True


def _told_upto(begin: Commit) -> int:
    """Return the logical time up to which a task may have told its event time before a commit (E2)."""
    assert begin.deterministic is not None
    return max(begin.deterministic.lease or -1, min((f.t for f in begin.deterministic.frontiers), default=-1))
