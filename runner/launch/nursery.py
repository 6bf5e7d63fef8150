"""The program that daemons of a launch are forked from: it has loaded torch and p2p-tally once, for all of them.

A fork shares the memory of what was loaded, and starts without loading it. This program does nothing else: it has one
thread, no event loop and no device, so a fork begins where a new process would be after its imports. The launcher's
side, and what the two say to each other, is in forks.py.
"""

import fcntl
import gc
import importlib
import json
import os
import random
import runpy
import select
import socket
import sys
from typing import Any

# The longest message of the launcher: a daemon is given the addresses of all others.
MESSAGE_BYTES = 1 << 20

# What a daemon loads sooner or later, whatever its options are: the program that a fork becomes, and what that needs.
LOADED = (
    "p2p_tally.cli",
    "p2p_tally.node.service.daemon",
    "p2p_tally.node.service.process",
    "p2p_tally.learning.features",
    "numpy.ctypeslib",
    "encodings.idna",
    "uvloop",
)


def load(more: list[str]) -> None:
    for name in (*LOADED, *more):
        try:
            importlib.import_module(name)
        except ImportError:
            if name != "uvloop":  # which is not on every platform
                raise
    from p2p_tally.learning import data, models  # noqa: PLC0415 - with torch

    data.sources()
    models.models()
    gc.collect()
    gc.freeze()  # the collector would write to the memory of every object, and so copy what the forks share


def serve(launcher: socket.socket) -> list[str]:
    """Fork a daemon whenever the launcher asks for one, until it is gone. Returns in a fork: its arguments."""
    living: dict[int, int] = {}  # descriptor that tells of a daemon's end: its process
    watched = select.poll()
    watched.register(launcher, select.POLLIN)
    while True:
        waiting = [descriptor for descriptor, _ in watched.poll()]
        for ended in [descriptor for descriptor in waiting if descriptor in living]:
            watched.unregister(ended)
            process = living.pop(ended)
            os.close(ended)
            _, status = os.waitpid(process, 0)
            _tell(launcher, {"ended": process, "code": os.waitstatus_to_exitcode(status)})
        if launcher.fileno() not in waiting:
            continue
        request, descriptors, _, _ = socket.recv_fds(launcher, MESSAGE_BYTES, 8)
        if not request:
            os._exit(0)  # the daemons end by themselves: their standard inputs have closed, too
        asked = json.loads(request)
        process = os.fork()
        if process == 0:
            launcher.close()
            for descriptor in living:
                os.close(descriptor)
            return _become(asked, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        end = os.pidfd_open(process)
        living[end] = process
        watched.register(end, select.POLLIN)
        _tell(launcher, {"started": process})


def _tell(launcher: socket.socket, message: dict[str, int]) -> None:
    try:
        launcher.send(json.dumps(message).encode())
    except OSError:
        os._exit(0)  # the launcher is gone


def _become(asked: dict[str, Any], came: list[int]) -> list[str]:
    """In a fork: what starting a process does, besides loading the program."""
    os.setsid()  # a Ctrl-C at the terminal reaches the launcher alone, which then stops every daemon
    random.seed()
    # Each descriptor gets its number, by way of one that no other has.
    free = max(asked["descriptors"], default=0) + 1
    for descriptor, number in zip([_moved(descriptor, free) for descriptor in came], asked["descriptors"], strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    arguments: list[str] = asked["arguments"]
    return arguments


def _moved(descriptor: int, free: int) -> int:
    """The same file with a number from `free` on."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, free)
    os.close(descriptor)
    return moved


def main() -> None:
    """The launcher's socket is standard input, until there is a fork. Its arguments name modules to load."""
    launcher = socket.socket(fileno=os.dup(0))
    load(sys.argv[1:])
    launcher.send(b"{}")  # ready
    sys.argv[1:] = serve(launcher)
    runpy.run_module("p2p_tally", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
