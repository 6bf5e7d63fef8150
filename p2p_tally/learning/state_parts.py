"""The parts of a learner's state, by the first word of their keys, and how an operator reads of them."""

PARTS = {
    "parameters": "the model",
    "generator": "the draw of examples",
    "optimiser": "the optimiser's state",
    "student": "the optimiser of merged models",
    "anchor": "the last merged model",
    "outer": "the merge rule's state",
    "feedback": "error feedback of coded merges",
    "voter": "what was known of the voters",
}


def part_of(key: str) -> str:
    return key.partition(".")[0]
