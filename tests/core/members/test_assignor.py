"""The assignor: even counts by few moves, state before order, standbys elsewhere."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from grete.core.members.assignor import CAUGHT_UP, Candidate, assign
from grete.protocol.members import HeldPartition, PartitionPlace

NAMES = ("a", "b", "c", "d", "e")
PLACE = st.builds(
    PartitionPlace,
    st.sampled_from((*NAMES, "gone", "")),
    standbys=st.lists(st.sampled_from(NAMES), max_size=2).map(tuple),
)
HELD = st.builds(
    HeldPartition,
    st.integers(0, 11),
    st.sampled_from(("running", "standby", "stored")),
    st.integers(-1, 5),
    st.integers(-1, 2 * CAUGHT_UP),
)


@st.composite
def candidates(draw: st.DrawFn) -> list[Candidate]:
    """Return some members on some machines, with whatever they say that they have."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
    held = st.lists(HELD, max_size=4).map(lambda said: {each.partition: each for each in said})
    return [Candidate(name, draw(st.sampled_from("xyz")), draw(st.booleans()), draw(held)) for name in names]


@given(st.integers(0, 12), candidates(), st.lists(PLACE, max_size=12), st.integers(0, 3))
def test_counts_are_even_and_moves_are_few(
    count: int, members: list[Candidate], places: list[PartitionPlace], replicas: int
) -> None:
    """Each partition has an owner; no member has two more than another; only what is above an even share moves."""
    current = dict(enumerate(places))
    found = assign(range(count), members, current, replicas)
    assert sorted(found) == list(range(count))
    owned = Counter({member.session: 0 for member in members})
    owned.update(place.owner for place in found.values())
    assert set(owned) == {member.session for member in members}
    assert max(owned.values()) - min(owned.values()) <= 1
    had = Counter(current[p].owner for p in range(count) if p in current and current[p].owner in owned)
    least, extra = divmod(count, len(members))
    most = sorted((had[name] for name in owned), reverse=True)
    excess = sum(max(0, has - least - (rank < extra)) for rank, has in enumerate(most))
    moved = sum(p in current and current[p].owner in owned and current[p].owner != found[p].owner for p in found)
    assert moved == excess


@given(st.integers(0, 12), candidates(), st.lists(PLACE, max_size=12), st.integers(0, 3))
def test_what_it_wants_it_keeps(
    count: int, members: list[Candidate], places: list[PartitionPlace], replicas: int
) -> None:
    """Asked again with its own answer it moves no partition."""
    found = assign(range(count), members, dict(enumerate(places)), replicas)
    again = assign(range(count), members, found, replicas)
    assert {p: place.owner for p, place in again.items()} == {p: place.owner for p, place in found.items()}


@given(st.integers(0, 12), candidates(), st.lists(PLACE, max_size=12), st.integers(0, 3))
def test_standbys_are_able_and_elsewhere(
    count: int, members: list[Candidate], places: list[PartitionPlace], replicas: int
) -> None:
    """As many as are asked for, or as there are members for; none is the owner; another machine if one can."""
    by_name = {member.session: member for member in members}
    for place in assign(range(count), members, dict(enumerate(places)), replicas).values():
        able = [member for member in members if member.warms and member.session != place.owner]
        assert len(place.standbys) == len(set(place.standbys)) == min(replicas, len(able))
        assert {by_name[session].warms for session in place.standbys} <= {True}
        assert place.owner not in place.standbys
        elsewhere = [member for member in able if member.machine != by_name[place.owner].machine]
        if elsewhere and replicas:
            assert by_name[place.standbys[0]].machine != by_name[place.owner].machine


def test_a_partition_goes_where_its_state_is() -> None:
    """A standby that has caught up is better than one that has not, that is better than files, and those than none."""
    full, empty = HeldPartition(0, "standby", 9, 0), HeldPartition(0, "standby", 1, CAUGHT_UP + 1)
    ranks = [
        Candidate("none"),
        Candidate("files", held={0: HeldPartition(0, "stored", 5)}),
        Candidate("more", held={0: HeldPartition(0, "stored", 6)}),
        Candidate("behind", held={0: empty}),
        Candidate("ready", held={0: full}),
    ]
    current = {0: PartitionPlace("gone", standbys=("behind", "ready"))}
    for most in range(len(ranks)):
        assert assign([0], ranks[: most + 1], current)[0].owner == ranks[most].session


def test_a_standby_that_has_said_nothing_yet_is_preferred() -> None:
    """A member that was named a standby, and has not said how far it is, comes before one without the state."""
    current = {0: PartitionPlace("gone", standbys=("named",))}
    assert assign([0], [Candidate("other"), Candidate("named")], current)[0].owner == "named"


def test_no_member_there() -> None:
    """Without members no partition has an owner."""
    assert assign([0, 1], [], {}) == {0: PartitionPlace(), 1: PartitionPlace()}
