"""A process that reports to the one that started it, by its standard output, and must not outlive it.

Its standard input is a pipe that the other holds.
"""

import os
import signal
import sys
import threading

from p2p_tally.json_lines import write_line
from p2p_tally.runner.runs.folder import as_text
from p2p_tally.runner.runs.run import RoundLine


def tell(line: RoundLine) -> None:
    """A line on standard output, as it stands in the record."""
    write_line(as_text(line).rstrip("\n"))


def end_with_standard_input() -> None:
    """End this process, as SIGTERM does, when its standard input closes."""
    descriptor = sys.stdin.fileno()

    def watch() -> None:
        # Not through sys.stdin: an interpreter that ends would wait for its lock.
        while os.read(descriptor, 1 << 16):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
