"""p2p-tally as a process that dies at a chosen point: python die_at.py POINT <arguments of p2p-tally>.

SIGKILL from inside, at an exact place, is what kill -9 from outside is at an unlucky instant.
"""

import os
import signal
import sys

from p2p_tally import cli
from p2p_tally.node.membership import points


def main(chosen: str, arguments: list[str]) -> None:
    def die(point: str) -> None:
        if point == chosen:
            os.kill(os.getpid(), signal.SIGKILL)

    points.at = die
    sys.argv = ["p2p-tally", *arguments]
    cli.main()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
