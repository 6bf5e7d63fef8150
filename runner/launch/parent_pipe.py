"""The child's end of a process that p2p-tally has started: it reports on standard output and ends with its parent.

Its standard input is a pipe that the parent holds open; it closes when the parent ends, however that happens.
"""

import os
import signal
import sys
import threading

from p2p_tally.json_lines import write_line
from p2p_tally.runner.runs.folder import as_text
from p2p_tally.runner.runs.run import RoundLine


def report_line(line: RoundLine) -> None:
    """Write a line of rounds.jsonl to standard output."""
    write_line(as_text(line).rstrip("\n"))


def end_with_standard_input() -> None:
    """End this process, as SIGTERM does, when its standard input closes."""
    descriptor = sys.stdin.fileno()

    def watch() -> None:
        # Not through sys.stdin: an interpreter that shuts down would wait for the lock of that object.
        while os.read(descriptor, 1 << 16):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-pipe", daemon=True).start()
