"""The commands of a federation with a members' list: found, invite, join, and what else changes the list.

A home holds all of it. A command that changes the list leaves a request there, which the home's daemon carries out.
"""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from p2p_tally.cli_options import ConfigFile, Json, file_options, print_end, print_json, takes_options
from p2p_tally.config import DaemonSettings, Federation, parse_options
from p2p_tally.errors import ConfigError
from p2p_tally.ids import node_name

# Options of one node alone: what join takes, and what node.toml holds.
OWN_OPTIONS = (
    "data", "partition", "augment", "test_count", "eval_every", "tail", "listen", "address", "dial_only", "admin",
    "admin_token_file", "device", "data_root", "download", "log", "log_format", "barrier_timeout", "longest_wait",
    "slow_peers", "quorum", "least_present", "alone", "checkpoint_every",
)  # fmt: skip

# How long a command waits for what becomes of its request.
OUTCOME_SECONDS = 30.0
DEFAULT_HOME = "~/.p2p-tally"

HomeFolder = Annotated[
    Path | None, typer.Option("--home", metavar="DIR", help=f"the node's home [default: {DEFAULT_HOME}]")
]
MemberName = Annotated[str, typer.Argument(metavar="NAME", help="a member's name")]


def home_of(folder: Path | str | None) -> Any:
    from p2p_tally.node.membership.home import Home

    return Home(Path(folder or DEFAULT_HOME))


def _name_of(home: Any) -> Any:
    """This node's name in its federation."""
    members = home.chain().members
    own = home.own_options().get("name")
    if own is None:
        raise ConfigError(f'{home.folder / "node.toml"}: does not say this node\'s name; add: name = "NAME"')
    return node_name(str(own)), members


def identity(
    action: Annotated[str, typer.Argument(metavar="[rotate]", help="rotate: replace the key by a new one")] = "show",
    home: HomeFolder = None,
    as_json: Json = False,
) -> None:
    """Show this node's key, which is made where there is none; or replace it, without leaving the federation."""
    from p2p_tally.trust.changes import Kind

    place = home_of(home)
    if action not in ("show", "rotate"):
        raise ConfigError(f"identity {action}: accepted is rotate, or nothing")
    if action == "rotate":
        if place.has_federation:
            name, _ = _name_of(place)
            _ask(place, Kind.ROTATE, name)
        else:
            place.identity()
            place.next_identity()
            place.adopt_next_identity()
    found = place.identity()
    if as_json:
        print_json({"fingerprint": found.fingerprint, "file": str(found.file)})
    else:
        print(found.fingerprint)


@takes_options(Federation, DaemonSettings)
def found(*, config: ConfigFile = None, as_json: Json = False, given: dict[str, Any]) -> None:
    """Make a federation with this node as its first member. It needs --name, and --listen or --dial-only."""
    from p2p_tally.node.membership.founding import found_federation

    values = {**file_options(config), **given}
    federation, settings = parse_options(values, DaemonSettings)
    home = home_of(settings.home)
    own = {key: value for key, value in values.items() if key in OWN_OPTIONS}
    chain = found_federation(home, federation, settings, own)
    members = chain.members
    me = members.current[members.founder]
    if as_json:
        print_json({"federation": members.federation, "name": me.name, "fingerprint": me.credential.fingerprint})
        return
    where = "" if settings.home is None else f" --home {settings.home}"
    print(f"founded {members.federation} in {home.folder}: {me.name}, key {me.credential.fingerprint}")
    print(f"start this node:   p2p-tally node{where}")
    print(f"invite somebody:   p2p-tally invite NAME{where}")


def invite(
    name: Annotated[str, typer.Argument(metavar="NAME", help="what the new member is to be called")],
    days: Annotated[float, typer.Option(metavar="DAYS", help="how long the invitation can be used")] = 7.0,
    home: HomeFolder = None,
    as_json: Json = False,
) -> None:
    """Print one line that lets NAME in, once. Send it as you would send a password."""
    from p2p_tally.node.membership.invitations import Invitations

    place = home_of(home)
    own, members = _name_of(place)
    invited = node_name(name)
    if not 0 < days <= 3650:
        raise ConfigError(f"--days {days}: accepted is a number of days above 0, at most 3650")
    if invited in members.current:
        raise ConfigError(f"{invited}: a member already; accepted is a name that nobody has")
    if not members.may_invite(own):
        raise ConfigError(f"{own} may not invite; {members.orderer} can allow it: p2p-tally allow {own}")
    if not members.current[own].address:
        raise ConfigError(f"{own}: nobody can dial this node, so nobody can join here; invite at another member")
    made = Invitations(place.invitations).make(invited, own, members, days)
    if as_json:
        print_json({"line": made.line(), "name": invited, "expires": made.expires})
    else:
        print(made.line())


@takes_options(Federation, DaemonSettings, only=OWN_OPTIONS)
def join(
    *,
    line: Annotated[str, typer.Argument(metavar="LINE", help="what p2p-tally invite printed; -: from standard input")],
    start: Annotated[bool, typer.Option("--start/--no-start", help="start the node afterwards")] = True,
    home: HomeFolder = None,
    as_json: Json = False,
    given: dict[str, Any],
) -> None:
    """Join a federation with the line of an invitation, and start the node. Run again, it goes on where it was."""
    from p2p_tally.node.membership.founding import join_federation
    from p2p_tally.trust.invitation import read_invitation

    invitation = read_invitation(sys.stdin.read() if line == "-" else line)
    place = home_of(home)
    chain = asyncio.run(join_federation(place, invitation, given, lambda text: print(text, file=sys.stderr)))
    members = chain.members
    me = members.current[invitation.name]
    key = me.credential.fingerprint
    if not as_json:
        print(f"joined {members.federation} as {me.name}, a member from round {me.since} on; key {key}", flush=True)
    elif not start:
        print_json({"federation": members.federation, "name": me.name, "since": me.since, "fingerprint": key})
    if start:
        run_member({"home": place.folder}, None, as_json)


def starts_member(given: dict[str, Any], from_file: dict[str, Any]) -> bool:
    """Whether `p2p-tally node` means the node of a home: no peers are given, and the home has a federation."""
    values = {**from_file, **given}
    if values.get("peers") or values.get("topology"):
        return False
    place = home_of(values.get("home"))
    return bool(place.has_federation)


def run_member(given: dict[str, Any], config: list[Path] | None, as_json: bool) -> None:
    """Run the node of a home until it has finished, or is asked to stop."""
    from p2p_tally.node.service.member import MemberDaemon
    from p2p_tally.node.service.process import run_daemon

    place = home_of(given.get("home"))
    members = place.chain().members
    values = place.shared_options(members) | place.own_options() | file_options(config) | given
    values = {"out": place.run, **values, "home": place.folder, "resume": True}
    federation, settings = parse_options(values, DaemonSettings)
    with place.held():
        daemon = MemberDaemon(federation, settings, place, keep_record=True)
        result = run_daemon(daemon, launched=False)
        kept = not result["finished"] or daemon.keep_model()
    if as_json:
        print_json(result)
    elif result["left"]:
        print(f"{result['name']}: no member any more, after round {result['round']}")
    else:
        print_end(result, "go on with: p2p-tally node")
    if not kept:
        raise typer.Exit(1)


def members(home: HomeFolder = None, as_json: Json = False) -> None:
    """List the members: names, keys, addresses, roles; and who is there, if this home's node runs with --admin."""
    place = home_of(home)
    found = place.chain().members
    admin = place.own_options().get("admin")
    links = _links(str(admin)) if admin and place.in_use else None
    rows = [_row(found, member, place.own_options().get("name"), links) for member in found.current.values()]
    if as_json:
        print_json({"federation": found.federation, "number": found.number, "members": rows})
        return
    from rich.table import Table

    from p2p_tally.runner.console.terminal import print_table

    table = Table(title=f"federation {found.federation}, change {found.number}", title_justify="left")
    for column in rows[0]:
        table.add_column(column)
    for row in rows:
        table.add_row(*map(str, row.values()))
    print_table(table)


def _row(found: Any, member: Any, own: object, links: dict[str, Any] | None) -> dict[str, Any]:
    roles = {
        "founder": member.name == found.founder,
        "orders changes": member.name == found.orderer,
        "successor": member.name == found.successor,
        "may invite": found.may_invite(member.name),
    }
    there = "this node" if member.name == own else "-"
    if links is not None and member.name in links:
        there = str(links[member.name].get("state", "-"))
    return {
        "name": member.name,
        "key": member.credential.fingerprint,
        "address": member.address or "dial-only",
        "roles": ", ".join(role for role, has in roles.items() if has),
        "since": member.since,
        "link": there,
    }


def _links(admin: str) -> dict[str, Any] | None:
    """What the daemon says of its links; None if it does not answer."""
    from p2p_tally.runner.console.status import ask

    (answer,) = asyncio.run(ask([admin]))
    found = answer.get("links")
    return found if isinstance(found, dict) else None


def leave(home: HomeFolder = None) -> None:
    """Leave the federation for good."""
    from p2p_tally.trust.changes import Kind

    place = home_of(home)
    name, members = _name_of(place)
    if name == members.orderer and len(members.current) > 1:
        raise ConfigError(
            f"{name} orders the changes; first name who does it then (p2p-tally successor NAME), "
            "and have that member take over (p2p-tally take-over)"
        )
    _ask(place, Kind.LEAVE, name)


def remove(name: MemberName, home: HomeFolder = None) -> None:
    """Put a member out. Its key opens nothing from the moment that the others hear of it."""
    from p2p_tally.trust.changes import Kind

    _ask_about(home, Kind.REMOVE, name)


def allow(name: MemberName, home: HomeFolder = None) -> None:
    """Allow a member to invite others."""
    from p2p_tally.trust.changes import Kind

    _ask_about(home, Kind.ALLOW, name)


def successor(name: MemberName, home: HomeFolder = None) -> None:
    """Name the member that may take over the ordering of changes, if this node is lost."""
    from p2p_tally.trust.changes import Kind

    _ask_about(home, Kind.SUCCESSOR, name)


def take_over(home: HomeFolder = None) -> None:
    """Order changes from now on, in the place of who did. Only the successor can."""
    from p2p_tally.trust.changes import Kind

    place = home_of(home)
    name, members = _name_of(place)
    if name != members.successor:
        raise ConfigError(f"{name} is not the successor; that is {members.successor or 'nobody'}")
    _ask(place, Kind.TAKE_OVER, name)


def _ask_about(home: Path | None, kind: Any, name: str) -> None:
    place = home_of(home)
    own, members = _name_of(place)
    about = node_name(name)
    if about not in members.current:
        raise ConfigError(f"{about}: no member; members are {', '.join(members.current)}")
    if own != members.orderer:
        raise ConfigError(f"{kind} {about}: accepted at {members.orderer} alone, who orders changes")
    if about == own:
        raise ConfigError(f"{kind} {about}: this node itself; accepted is another member")
    _ask(place, kind, about)


def _ask(place: Any, kind: Any, name: Any) -> None:
    """Leave a request, and say what became of it."""
    from p2p_tally.node.membership.requests import Requests

    requests = Requests(place.requests)
    number = requests.ask(kind, name)
    if not place.in_use:
        print(f"{kind} of {name}: done as soon as this node runs: p2p-tally node")
        return
    outcome = requests.outcome(number, OUTCOME_SECONDS)
    if outcome is None:
        orderer = place.chain().members.orderer
        print(f"{kind} of {name}: waits for {orderer}, who orders changes")
    elif outcome.done:
        print(outcome.text)
    else:
        raise ConfigError(f"{kind} of {name}: {outcome.text}")


COMMANDS = (identity, invite, members, leave, remove, allow, successor, take_over)
