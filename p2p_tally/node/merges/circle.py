"""The members of a robust merge, and how they tell each other things besides parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from p2p_tally.defence.agreement import MOST_EXCHANGES, Agreement, exchanges
from p2p_tally.defence.rule import Rule
from p2p_tally.errors import PeerError
from p2p_tally.ids import NodeName
from p2p_tally.node.merges.budget import Budget
from p2p_tally.node.merges.exchange import Peers
from p2p_tally.protocol.messages import Shard, Stage


@dataclass(frozen=True)
class Circle:
    """Members that agree on something, in order of name."""

    peers: Peers
    round: int
    names: list[NodeName]
    rule: Rule
    budget: Budget

    @property
    def place(self) -> int:
        return self.names.index(self.peers.name)

    @property
    def others(self) -> list[NodeName]:
        return [name for name in self.names if name != self.peers.name]

    def accuse(self, peer: NodeName, text: str, reason: str) -> None:
        self.peers.refuse(peer, PeerError(f"round {self.round}: {text}", reason=reason))

    async def agree(self, stage: Stage, number: int, value: bytes, others: Sequence[NodeName]) -> list[bytes]:
        """What every member said, the same at all that do not lie; empty if it said nothing. `number`: of the agreement
        in this stage. `others`: who is awaited."""
        count = exchanges(len(self.names), self.rule.liars)
        agreement = Agreement(len(self.names), self.place, value, count)
        for exchange in range(count):
            part = number * MOST_EXCHANGES + exchange
            self.peers.outbox.broadcast(others, Shard(self.round, stage, part, agreement.message(exchange)))
            came = await self.peers.gather(stage, self.round, part, others, self.budget.next())
            said = {self.names.index(peer): data for peer, data in came.items()}
            for place, error in agreement.receive(exchange, said).items():
                self.peers.refuse(self.names[place], error)
        return agreement.values()

    async def ask(self, part: int, messages: Mapping[NodeName, bytes]) -> dict[NodeName, bytes]:
        """Send each of these members a message of a check. Returns theirs, which must be as long."""
        for peer, data in messages.items():
            self.peers.outbox.broadcast([peer], Shard(self.round, Stage.CHECK, part, data))
        came = await self.peers.gather(Stage.CHECK, self.round, part, messages, self.budget.next())
        for peer in [peer for peer, data in came.items() if len(data) != len(messages[peer])]:
            self.accuse(peer, f"a check of {len(came[peer])} bytes instead of {len(messages[peer])}", "shape")
            del came[peer]
        return came
