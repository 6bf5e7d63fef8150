"""What comes back from the address of a member, where anybody may answer: read whole, or refused."""

import pytest

from p2p_tally.errors import TrustError
from p2p_tally.node.membership.catching_up import Reply


def test_an_answer_is_read() -> None:
    assert Reply.read(b'{"number": 3, "digest": "ab", "changes": ["x"]}') == Reply(3, "ab", ("x",))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[1]",
        b"7",
        b"[" * 5000,
        b'{"number": Infinity, "digest": "ab", "changes": []}',
        b'{"number": -1, "digest": "ab", "changes": []}',
        b'{"number": true, "digest": "ab", "changes": []}',
        b'{"number": 3, "digest": 7, "changes": []}',
        b'{"number": 3, "digest": "ab", "changes": [7]}',
        b'{"number": 3, "digest": "ab", "changes": 7}',
        b'{"number": 3, "changes": []}',
    ],
)
def test_what_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(TrustError, match="no answer of this version"):
        Reply.read(body)
