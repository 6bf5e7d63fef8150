"""python -m p2p_tally"""

from p2p_tally.cli import main

main()
