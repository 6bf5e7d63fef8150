"""The command evidence: proofs that members have signed different ballots for the same rounds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from p2p_tally.cli_members import HomeFolder, home_of
from p2p_tally.cli_options import Json, print_json
from p2p_tally.errors import DataError, TrustError

if TYPE_CHECKING:
    from p2p_tally.trust.evidence import Proof


def evidence(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="a proof to check [default: list those of this home]")
    ] = None,
    home: HomeFolder = None,
    as_json: Json = False,
) -> None:
    """List proofs that members have signed two sets of ballots for the same rounds. With FILE: check one."""
    place = home_of(home)
    files = place.evidence() if file is None else [file]
    found = [_row(path, _checked(path), place) for path in files]
    if as_json:
        print_json({"evidence": found})
        return
    for row in found:
        first, last = row["rounds"]
        print(f"{row['member']} signed two sets of ballots for rounds {first} to {last}: {row['file']}")
        known = {None: "no members' list here to compare it with", True: "a key of the member", False: "NOT its key"}
        print(f"  valid signatures by {row['fingerprint']}: {known[row['known']]}")
    if not found:
        print("no evidence against anybody")


def _checked(path: Path) -> "Proof":
    from p2p_tally.trust.evidence import read_proof

    try:
        proof = read_proof(path.read_bytes())
        proof.check()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    except TrustError as error:
        raise DataError(f"{path}: {error}") from None
    return proof


def _row(path: Path, proof: "Proof", home: Any) -> dict[str, Any]:
    """`known`: whether the list in this home names the key as the member's; None if there is no list of the
    federation."""
    from p2p_tally.trust.chain import keys_of

    known = None
    if home.has_federation and (chain := home.chain()).members.federation == proof.first.federation:
        known = proof.key in keys_of(chain, proof.first.member)
    return {
        "member": proof.first.member, "fingerprint": proof.fingerprint, "federation": proof.first.federation,
        "rounds": list(proof.rounds), "known": known, "file": str(path),
    }  # fmt: skip
