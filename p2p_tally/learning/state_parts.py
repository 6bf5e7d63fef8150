"""The parts of a learner's state, and what is said of those that a checkpoint of other options does not carry over."""

from collections.abc import Set as AbstractSet

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
    "voter": "what was known of the voters",
}
LATE = "late."


def part_of(key: str) -> str:
    return key.partition(".")[0]


def not_carried_over(lacking: AbstractSet[str], unused: AbstractSet[str]) -> list[str]:
    """`lacking`: parts that begin anew. `unused`: parts that are of no use here."""
    return [f"{PARTS[part]} begins anew" for part in sorted(lacking)] + [
        f"{PARTS[part]} is not used" for part in sorted(unused - lacking)
    ]
