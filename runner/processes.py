"""Processes of p2p-tally that another p2p-tally starts: one torch thread each, standard input held by the parent.

The child ends when its standard input closes (launch/parent_pipe.py), so none outlives the process that started it.
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from p2p_tally.options import VARIABLE_PREFIX

# The longest line that a process may write: that of a round with thousands of peers.
LINE_BYTES = 1 << 24

# One thread for each process: many processes share a machine, and other counts sum floats in another order.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def command(arguments: Sequence[str]) -> list[str]:
    """p2p-tally with these arguments, by this Python.

    -P: `python -m` would put the working folder first on the path, where a user's own random.py would take the place
    of Python's. A user's model or data module is found all the same (own_objects.py).
    """
    return [sys.executable, "-P", "-m", "p2p_tally", *arguments]


def _inherited() -> dict[str, str]:
    """The environment without options: the parent has read them, and in a child they would win over its file."""
    return {name: value for name, value in os.environ.items() if not name.startswith(VARIABLE_PREFIX)}


async def start_nursery(launcher: int, loads: Sequence[str] = ()) -> asyncio.subprocess.Process:
    """Start the process that daemons are forked from, with these modules loaded too. Its standard input is this
    descriptor."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "p2p_tally.runner.launch.nursery", *loads),
        stdin=launcher,
        stdout=asyncio.subprocess.DEVNULL,
        env={**_inherited(), **ONE_THREAD},
        start_new_session=True,
    )


async def start(
    arguments: Sequence[str],
    *,
    log: IO[bytes],
    read_stdout: bool = True,
    descriptors: Sequence[int] = (),
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    own_session: bool = False,
) -> asyncio.subprocess.Process:
    """Start p2p-tally, its standard error in `log`. `own_session`: a Ctrl-C at the terminal does not reach it."""
    return await asyncio.create_subprocess_exec(
        *command(arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE if read_stdout else asyncio.subprocess.DEVNULL,
        stderr=log,
        pass_fds=list(descriptors),
        cwd=directory,
        env={**_inherited(), **ONE_THREAD, **(environment or {})},
        start_new_session=own_session,
        limit=LINE_BYTES,
    )
