"""A process that must not outlive the one that started it: its standard input is a pipe that the other end holds."""

import os
import signal
import sys
import threading


def end_with_standard_input() -> None:
    """End this process, as SIGTERM does, when its standard input closes."""
    descriptor = sys.stdin.fileno()

    def watch() -> None:
        # Not through sys.stdin: an interpreter that ends would wait for its lock.
        while os.read(descriptor, 1 << 16):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
