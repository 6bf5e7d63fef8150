"""The parts of a learner's state, by the first word of their keys: which of them a snapshot has, and what a user reads
of the others."""

from collections.abc import Collection, Set

from p2p_tally.errors import ConfigError

# By the first word of their keys.
PARTS = {
    "parameters": "the model",
    "generator": "the draw of examples",
    "optimiser": "the optimiser's state",
    "student": "the optimiser of merged models",
    "anchor": "the last merged model",
    "outer": "the merge rule's state",
    "feedback": "error feedback of coded merges",
    "late": "what was heard and merged for the next round",
    "subject": "what peers were told of each other's examples",
    "voter": "what was known of the voters",
}
LATE = "late."
SUBJECT = "subject."


def part_of(key: str) -> str:
    return key.partition(".")[0]


def lacking_parts(own: Set[str], kept: Collection[str], method: str) -> set[str]:
    """The parts of a learner's own keys that a snapshot with these keys does not have."""
    lacking = {part_of(key) for key in own - set(kept)}
    if "outer" in lacking:  # each peer would begin with a state of its own, and they would never have one model
        raise ConfigError(
            f"--method {method}: the checkpoint was written with a method whose merges keep no such state; go on with "
            "that method, or begin anew with another --out"
        )
    return lacking


def not_carried_over(lacking: Set[str], unused: Set[str]) -> list[str]:
    """What a user reads: parts that begin anew, and parts of the snapshot that are of no use."""
    return [f"{PARTS[part]} begins anew" for part in sorted(lacking)] + [
        f"{PARTS[part]} is not used" for part in sorted(unused - lacking)
    ]
