"""Every exception of the project, by whose fault it is.

    TallyError
    ├── OperatorError          the operator can solve it: one line, exit code 2 unless it says otherwise, no traceback
    │   ├── ConfigError        an option or a key: names it, the value and what is accepted
    │   ├── DataError          a file or a data set: names it and what is wrong with it
    │   └── StoppedError       the operator stopped it: exit code 130, says how to resume
    └── PeerError              a peer's mistake: counted by `reason`, logged, never stops the round
        ├── FrameError         bytes that are no message of ours
        ├── BallotError        a ballot that does not decode to votes
        ├── ParameterError     parameters of the wrong shape or type, or not finite
        ├── HandshakeError     a peer of another federation, or none at all
        ├── TrustError         a key, a signature or a list of members that does not hold
        └── MessageError       what a node sends to a live page, and is none of it

A fault of the program is a plain Python exception and ends in a traceback.
"""


class TallyError(Exception):
    """Base of all the project's own exceptions."""


class OperatorError(TallyError):
    """The operator can solve this; the message is one line that says how."""

    exit_code = 2


class ConfigError(OperatorError):
    """A setting that is not accepted."""


class DataError(OperatorError):
    """A data set that is missing, damaged or unfit for the task."""


class StoppedError(OperatorError):
    """Stopped before its end, as the operator asked."""

    exit_code = 130


class PeerError(TallyError):
    """A peer misbehaved. `reason` is a short fixed name for counters."""

    reason = "peer"

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason


class FrameError(PeerError):
    reason = "frame"


class BallotError(PeerError):
    reason = "ballot"


class ParameterError(PeerError):
    reason = "parameters"


class HandshakeError(PeerError):
    reason = "handshake"


class TrustError(PeerError):
    reason = "trust"


class MessageError(PeerError):
    reason = "page"
