"""Some of the members as bits."""

from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.ids import NodeName, ranked_names
from p2p_tally.protocol.masks import from_mask, to_mask

MEMBERS = ranked_names(20)


@given(st.sets(st.sampled_from(MEMBERS)), st.integers(1, 20))
def test_a_mask_names_those_who_are_there(present: set[NodeName], count: int) -> None:
    members = MEMBERS[:count]
    mask = to_mask(present, members)
    assert len(mask) == (count + 7) // 8
    assert from_mask(mask, members) == present.intersection(members)


def test_the_first_member_has_the_highest_bit() -> None:
    assert to_mask([MEMBERS[0]], MEMBERS) == b"\x80\x00\x00"
    assert to_mask([MEMBERS[9]], MEMBERS) == b"\x00\x40\x00"


def test_what_a_peer_sends_may_be_too_short_or_too_long() -> None:
    assert from_mask(b"", MEMBERS) == set()
    assert from_mask(b"\xff", MEMBERS) == set(MEMBERS[:8])
    assert from_mask(b"\xff" * 9, MEMBERS) == set(MEMBERS)
