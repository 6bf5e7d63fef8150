"""The numbers that stand for messages and stages on the wire, and the checks that all messages share."""

from enum import IntEnum

from p2p_tally.errors import FrameError

# Rounds and counts take at most 4 bytes.
MAX_NUMBER = 2**32 - 1

# The longest text of a message. It is checked before anything is compared.
MAX_TEXT = 1024


class Kind(IntEnum):
    """Append only: never change or reuse a number."""

    HELLO = 1
    VOTE = 2
    READY = 3
    SHARD = 4
    ANNOUNCE = 5
    BYE = 6
    HERE = 7
    WITHDRAW = 8
    WAITING = 9
    WELCOME = 10
    RELAYED = 11
    NEWS = 12
    LOST = 13
    FETCH = 14
    STATE = 15
    PIECE = 16
    CARRIED = 17
    LIST_NUMBER = 18
    LIST_ASK = 19
    LIST_PART = 20
    LIST_REQUEST = 21
    SIGNED = 22
    ECHOED = 23
    PASSED = 24


class Stage(IntEnum):
    """What a barrier waits for; the ledger counts bytes by it. Append only."""

    VOTE = 1  # ballots for the probes of a round
    READY = 2  # accuracy on the probes, during an automatic warm-up
    VECTOR = 3  # a neighbour's parameters
    SCATTER = 4  # all-reduce, first half: the segment of a peer's parameters that this node sums
    GATHER = 5  # all-reduce, second half: the mean of the segment that a peer summed
    ANNOUNCE = 6  # who takes part in a merge
    HANDSHAKE = 7  # hello, here, waiting, withdraw, news and bye
    HANDOVER = 8  # what a newcomer gets from a peer
    CARRIED = 9  # what a node carries between two that cannot reach each other
    LIST = 10  # the members' list
    ROLL = 11  # robust merges: whose announcements came, agreed on by all
    CHECK = 12  # robust merges: digests of the result, and what each contributed in a few places
    VERDICT = 13  # robust merges: whether the result is accepted, agreed on by all
    EVIDENCE = 14  # signatures under ballots


def check_number(value: object, what: str) -> None:
    if type(value) is not int or not 0 <= value <= MAX_NUMBER:
        raise FrameError(f"{what} is {value!r:.40}, not a number from 0 to {MAX_NUMBER}", reason="field")


def check_round(value: object) -> None:
    check_number(value, "round")
    if value == 0:
        raise FrameError("round is 0; rounds count from 1", reason="field")


def check_bytes(value: object, what: str) -> None:
    if type(value) is not bytes:
        raise FrameError(f"{what} is {type(value).__name__}, not bytes", reason="field")


def check_text(value: object, what: str) -> None:
    if type(value) is not str or len(value) > MAX_TEXT:
        raise FrameError(f"{what} is {value!r:.40}, not a text of at most {MAX_TEXT} characters", reason="field")
