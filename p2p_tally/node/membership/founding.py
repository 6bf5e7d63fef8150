"""Founding a federation, and joining one: from options and an invitation to a home that has all a node needs.

Each can be run again after a crash at any moment: the members' list is written last.
"""

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from p2p_tally.config import DaemonSettings, Federation, parse_options
from p2p_tally.errors import ConfigError
from p2p_tally.ids import node_name
from p2p_tally.learning.graph import graph_of
from p2p_tally.learning.setup import prepare
from p2p_tally.node.links.addresses import Address, parse_address
from p2p_tally.node.membership.home import Home, sha256
from p2p_tally.node.membership.joining import join
from p2p_tally.node.membership.shared import check_imports, options_text, probes_file
from p2p_tally.trust.chain import Chain
from p2p_tally.trust.changes import MOST_ROUNDS
from p2p_tally.trust.invitation import Invitation

# A graph is tried with up to this many members before it is refused: some need a certain number.
MOST_TRIED = 64
# Sources whose argument is one file.
DATA_FILES = ("npz", "text")


def found_federation(home: Home, federation: Federation, settings: DaemonSettings, own: Mapping[str, Any]) -> Chain:
    """Make a federation with one member. `own`: the options that are this node's own."""
    if settings.name is None:
        raise ConfigError("--name: needed; accepted is a short plain name, by which the others know this node")
    name, address = node_name(settings.name), public_address(settings)
    if home.has_federation:
        raise ConfigError(
            f"--home {home.folder}: has a federation already; start its node with p2p-tally node, "
            "or name another folder"
        )
    if federation.overlap:
        raise ConfigError("--overlap: accepted where members do not change; who is invited joins while others play")
    check_graph_at_some_size(federation)
    check_imports(federation)
    options = options_text(federation)
    # As a node alone: all of --data is this node's own, but for the probes.
    alone = federation.model_copy(update={"nodes": 1, "partition": "iid"})
    probes = probes_file(prepare(alone, root=settings.data_root, download=settings.download))
    identity = home.identity()
    home.save_shared(options, probes)
    home.save_own({**_found_from_anywhere(own), "name": name})
    chain = Chain.found(identity, name, address, sha256(options), sha256(probes))
    home.save_chain(chain)
    return chain


async def join_federation(
    home: Home, invitation: Invitation, own: Mapping[str, Any], say: Callable[[str], None]
) -> Chain:
    """Become a member. `own`: the options that are this node's own."""
    # How many rounds there are is not known yet; some of this node's own options are checked against that.
    _, settings = parse_options({**own, "rounds": MOST_ROUNDS}, DaemonSettings)
    address = public_address(settings)
    _check_data_file(own)  # before anybody lets this node in
    if home.has_federation:
        return _joined_before(home, invitation, own)
    welcome = await join(home, invitation, address, say)
    values = tomllib.loads(welcome.options.decode())
    check_imports(Federation.parse(values, source="the federation's options"))
    parse_options({**values, **own}, DaemonSettings)
    home.save_shared(welcome.options, welcome.probes)
    home.save_own({**_found_from_anywhere(own), "name": invitation.name})
    home.save_chain(welcome.chain)
    return welcome.chain


def _joined_before(home: Home, invitation: Invitation, own: Mapping[str, Any]) -> Chain:
    """The command is run again after it had come to its end; options given now take the place of those before."""
    chain = home.chain()
    if chain.members.federation != invitation.federation:
        raise ConfigError(
            f"--home {home.folder}: has another federation, {chain.members.federation}; name another folder"
        )
    if chain.members.owner(home.identity().credential.key) != invitation.name:
        raise ConfigError(f"--home {home.folder}: belongs to another member of this federation; name another folder")
    home.save_own({**home.own_options(), **_found_from_anywhere(own), "name": invitation.name})
    return chain


def _check_data_file(own: Mapping[str, Any]) -> None:
    kind, _, path = str(own.get("data", "")).partition(":")
    if kind in DATA_FILES and not Path(path).is_file():
        raise ConfigError(f"--data {kind}:{path}: no such file; accepted is {kind}:FILE")


def _found_from_anywhere(own: Mapping[str, Any]) -> dict[str, Any]:
    """The same options with whole paths: the node may be started in another folder."""
    values = dict(own)
    kind, colon, path = str(values.get("data", "")).partition(":")
    if colon and Path(path).exists():
        values["data"] = f"{kind}:{Path(path).resolve()}"
    if values.get("data_root"):
        values["data_root"] = str(Path(values["data_root"]).resolve())
    return values


def public_address(settings: DaemonSettings) -> str:
    """Where the others reach this node; "": nobody can dial it."""
    if settings.dial_only:
        return ""
    listen = parse_address(settings.listen, "--listen")
    if settings.address is not None:
        return str(parse_address(settings.address, "--address"))
    if _is_any(listen):
        raise ConfigError(f"--listen {listen}: stands for all addresses; name the one that others dial with --address")
    if listen.port == 0:
        raise ConfigError(f"--listen {listen}: others need to know the port; accepted is 1 to 65535")
    return str(listen)


def _is_any(address: Address) -> bool:
    return address.host in ("0.0.0.0", "::")


def check_graph_at_some_size(federation: Federation) -> None:
    """Refuse a graph that cannot be made for any number of members. With too few the members are all neighbours."""
    problem: ConfigError | None = None
    for count in range(1, MOST_TRIED + 1):
        try:
            graph_of(federation, [f"member-{number}" for number in range(count)])
        except ConfigError as error:
            problem = error
        else:
            return
    assert problem is not None
    raise problem
