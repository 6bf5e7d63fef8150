"""The members' list: who may change it, what nobody can alter, and which of two lists counts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2p_tally.errors import ConfigError, TrustError
from p2p_tally.ids import NodeName
from p2p_tally.trust.chain import FILE, Chain, TwoLists, consent, load_chain
from p2p_tally.trust.changes import Change, Details, Kind
from p2p_tally.trust.identity import Identity, make_identity

ALICE, BOB, CAROL = map(NodeName, ("alice", "bob", "carol"))
OPTIONS, PROBES = "0" * 64, "1" * 64


class People:
    """Identities by name, and the shortest way to change a list as one of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys: dict[str, Identity] = {}

    def __getitem__(self, name: str) -> Identity:
        if name not in self.keys:
            self.keys[name] = make_identity(self.folder / name)
        return self.keys[name]

    def found(self) -> Chain:
        return Chain.found(self["alice"], ALICE, "10.0.0.1:7001", OPTIONS, PROBES)

    def change(
        self, chain: Chain, by: str, kind: Kind, name: str, round: int = 1, orderer: str = "alice", **details: str
    ) -> Chain:
        request = chain.request(self[by], NodeName(by), kind, NodeName(name), Details(**details))
        return chain.ordered(self[orderer], request, round)

    def join(self, chain: Chain, name: str, by: str = "alice", round: int = 1, orderer: str = "alice") -> Chain:
        address = f"10.0.0.{len(name)}:7001"
        return self.change(
            chain, by, Kind.JOIN, name, round, orderer,
            credential=self[name].credential.text,
            address=address,
            consent=consent(self[name], chain.members.federation, NodeName(name), address),
        )  # fmt: skip


@pytest.fixture
def people(tmp_path: Path) -> People:
    return People(tmp_path)


def test_members_by_round(people: People) -> None:
    chain = people.join(people.found(), "bob", round=5)
    chain = people.join(chain, "carol", round=9)
    chain = people.change(chain, "bob", Kind.LEAVE, "bob", round=20)
    chain = people.join(chain, "bob", round=30)
    members = chain.members
    assert [members.at(round) for round in (1, 5, 9, 19, 20, 30)] == [
        [ALICE], [ALICE, BOB], [ALICE, BOB, CAROL], [ALICE, BOB, CAROL], [ALICE, CAROL], [ALICE, BOB, CAROL]
    ]  # fmt: skip
    assert [first for first, _ in members.epochs()] == [1, 5, 9, 20, 30]
    assert members.owner(people["bob"].credential.key) == BOB


def test_who_joins_and_leaves_before_its_round_is_never_a_member(people: People) -> None:
    chain = people.join(people.found(), "bob", round=9)
    chain = people.change(chain, "bob", Kind.LEAVE, "bob", round=9)
    assert all(chain.members.at(round) == [ALICE] for round in range(1, 20))


def test_a_removed_key_counts_no_more_whatever_the_round(people: People) -> None:
    chain = people.join(people.found(), "bob", round=5)
    chain = people.change(chain, "alice", Kind.REMOVE, "bob", round=50)
    assert chain.members.owner(people["bob"].credential.key) is None
    assert chain.members.at(49) == [ALICE, BOB]


def test_a_new_key_takes_the_place_of_the_old_one(people: People) -> None:
    chain = people.join(people.found(), "bob")
    chain = people.change(chain, "bob", Kind.ROTATE, "bob", credential=people["bob again"].credential.text)
    assert chain.members.owner(people["bob"].credential.key) is None
    assert chain.members.owner(people["bob again"].credential.key) == BOB
    with pytest.raises(TrustError, match="not by the key"):  # the old key signs nothing more
        people.change(chain, "bob", Kind.LEAVE, "bob")


def test_who_may_ask_for_what(people: People) -> None:
    chain = people.join(people.join(people.found(), "bob"), "carol")
    refused = [
        ("bob", Kind.REMOVE, "carol"),
        ("bob", Kind.LEAVE, "carol"),
        ("bob", Kind.ALLOW, "bob"),
        ("bob", Kind.SUCCESSOR, "bob"),
        ("bob", Kind.TAKE_OVER, "bob"),
        ("alice", Kind.LEAVE, "alice"),
        ("alice", Kind.SUCCESSOR, "alice"),
    ]
    for by, kind, name in refused:
        with pytest.raises(TrustError) as error:
            people.change(chain, by, kind, name, orderer=by if kind is Kind.TAKE_OVER else "alice")
        assert error.value.reason == "role", (by, kind, name)
    with pytest.raises(TrustError, match="may not invite"):
        people.join(chain, "dave", by="bob")
    allowed = people.change(chain, "alice", Kind.ALLOW, "bob")
    assert NodeName("dave") in people.join(allowed, "dave", by="bob").members.current


def test_only_who_orders_changes_signs_them(people: People) -> None:
    chain = people.join(people.found(), "bob")
    request = chain.request(people["bob"], BOB, Kind.LEAVE, BOB, Details())
    with pytest.raises(TrustError, match="not by the key"):
        chain.ordered(people["bob"], request, 5)


def test_a_newcomer_must_have_agreed(people: People) -> None:
    chain = people.found()
    mallory = people["mallory"]
    with pytest.raises(TrustError, match="consent of bob"):
        people.change(
            chain, "alice", Kind.JOIN, "bob",
            credential=people["bob"].credential.text,
            consent=consent(mallory, chain.members.federation, BOB, ""),
        )  # fmt: skip


def test_an_old_request_is_not_used_again(people: People) -> None:
    chain = people.join(people.found(), "bob")
    old = chain.request(people["bob"], BOB, Kind.ADDRESS, BOB, Details(address="10.9.9.9:1"))
    chain = chain.ordered(people["alice"], old, 1)
    assert chain.members.current[BOB].address == "10.9.9.9:1"
    with pytest.raises(TrustError) as error:
        chain.ordered(people["alice"], old, 1)
    assert error.value.reason == "old"


def test_the_successor_takes_over_and_its_list_counts(people: People) -> None:
    chain = people.join(people.join(people.found(), "bob"), "carol")
    chain = people.change(chain, "alice", Kind.SUCCESSOR, "bob")
    by_alice = people.change(chain, "alice", Kind.REMOVE, "carol")
    by_bob = people.change(chain, "bob", Kind.TAKE_OVER, "bob", orderer="bob")
    by_bob = people.join(by_bob, "dave", by="bob", orderer="bob")
    for one, other in ((by_alice, by_bob), (by_bob, by_alice)):
        assert one.reconciled(1, other.changes).members == by_bob.members
        assert one.reconciled(4, other.changes[3:]).members == by_bob.members
    with pytest.raises(TrustError):  # alice orders no more
        people.change(by_bob, "alice", Kind.REMOVE, "carol")


def test_two_lists_of_one_orderer_are_noticed(people: People) -> None:
    chain = people.join(people.found(), "bob")
    one = people.join(chain, "carol")
    other = people.change(chain, "alice", Kind.ALLOW, "bob")
    with pytest.raises(TwoLists):
        one.reconciled(1, other.changes)


def test_the_longer_list_is_taken_and_the_shorter_passed_over(people: People) -> None:
    short = people.join(people.found(), "bob")
    long = people.join(short, "carol")
    assert short.reconciled(1, long.changes) == long
    assert short.reconciled(3, long.changes[2:]) == long
    assert long.reconciled(1, short.changes) == long
    with pytest.raises(TrustError, match="accepted is 1 to 3"):
        short.reconciled(4, long.changes[2:])


def test_a_file_altered_by_hand_is_refused(people: People, tmp_path: Path) -> None:
    chain = people.join(people.found(), "bob")
    chain.save(tmp_path)
    assert load_chain(tmp_path) == chain
    path = tmp_path / FILE
    path.write_text(path.read_text().replace("10.0.0.3:7001", "10.0.0.4:7001"))
    with pytest.raises(ConfigError, match="altered"):
        load_chain(tmp_path)
    path.unlink()
    with pytest.raises(ConfigError, match="no federation there"):
        load_chain(tmp_path)


def test_every_field_is_signed(people: People) -> None:
    """Whatever is altered in a change, it is refused."""
    chain = people.join(people.found(), "bob", round=3)
    values = json.loads(chain.changes[1].line())
    altered = [
        {**values, "number": 3},
        {**values, "round": 4},
        {**values, "previous": "ab" * 32},
        {**values, "orderer": "bob"},
    ]
    for key, value in (("name", "eve"), ("by", "bob"), ("after", 0), ("federation", "ab"), ("kind", "leave")):
        altered.append({**values, "request": {**values["request"], key: value}})
    for key, value in values["request"]["details"].items():
        other = value[:-9] + ("A" if value[-9] != "A" else "B") + value[-8:]
        details = {**values["request"]["details"], key: other}
        altered.append({**values, "request": {**values["request"], "details": details}})
    for line in altered:
        with pytest.raises(TrustError):
            Chain(()).extended([chain.changes[0], Change.read(json.dumps(line))])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)


@given(st.text(max_size=200) | JSON.map(json.dumps))
@settings(max_examples=200)
def test_nonsense_is_refused_and_nothing_else_happens(line: str) -> None:
    with pytest.raises(TrustError):
        Change.read(line)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    people = People(tmp_path_factory.mktemp("people"))
    return people.join(people.found(), "bob").changes[1].line()


@given(st.data())
@settings(max_examples=200)
def test_a_change_with_one_value_replaced_is_read_or_refused(written: str, data: st.DataObject) -> None:
    values = json.loads(written)
    place = data.draw(st.sampled_from([values, values["request"], values["request"]["details"]]))
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON)
    try:
        change = Change.read(json.dumps(values))
    except TrustError:
        return
    assert Change.read(change.line()) == change


def test_a_found_cannot_come_twice(people: People) -> None:
    first = people.found()
    second = replace(first.changes[0], number=2, previous=first.members.digest).signed(people["alice"])
    with pytest.raises(TrustError, match="not the first change"):
        first.extended([second])
