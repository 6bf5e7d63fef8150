"""What the rounds of a federation would take, without playing them: the clock over the messages of the schedule.

Its rounds are those of `Traffic.planned`: what only a run can tell (coded ballots, merges by drift, an automatic
warm-up) is not in it. Learns nothing, needs no data.
"""

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.learning.graph import make_topology
from p2p_tally.node.flows import flows
from p2p_tally.node.formats import ballot_format
from p2p_tally.node.traffic import Traffic
from p2p_tally.runner.clock.clock import Played, Reading
from p2p_tally.runner.clock.messages import Messages, table_of
from p2p_tally.runner.clock.setup import make_clock


def forecast(federation: Federation, votes_per_round: int, classes: int, parameters: int) -> list[Reading]:
    """The clock after each round of a resolved federation with --link and --compute."""
    topology = make_topology(federation)
    traffic = Traffic(federation, topology, ballot_format(federation, votes_per_round, classes), parameters)
    clock, tables = make_clock(federation, topology), {}
    readings = []
    for r, said, merge in traffic.planned():
        # Rounds of the same graph that do the same send the same.
        alike = topology.phase(r), tuple(vote.payload for vote, _ in said), merge, topology.newcomers(r), r.bit_length()
        if alike not in tables:
            tables[alike] = table_of(flows(traffic, r, said, merge))
        sent: Messages = tables[alike]
        members = np.array([topology.rank(member) for member in topology.members_at(r)])
        nothing = np.zeros(len(members), np.int64)
        clock.play(r, lambda sent=sent: sent, Played(members, nothing, nothing))  # type: ignore[misc]
        assert clock.reading is not None, "a forecast is over given links"
        readings.append(clock.reading)
    return readings
