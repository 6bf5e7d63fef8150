"""Votes from large vocabularies: what a round takes in time and in bytes, past what two bytes name too.

The text is WikiText-2. The byte-pair tokenizer of `--data wikitext2` splits it into words first, and its training text
then makes at most 47,608 tokens. So here the tokenizer may join words, which makes as many as asked for; the data is a
`Source` like a user's own. Four peers have a chunk of the text each and a TinyGPT of width 16, and nothing merges. The
run sends coded ballots, whose bytes are measured; the other bytes are by formula, which tests compare with what nodes
send. All peers know the probes, so they know the tokens that follow, and the code uses them as labels. After so few
rounds a model votes for few different tokens, which is easy to code. So `better` shows a coded ballot of votes that are
right on 40 % and else spread like the text's own tokens.

    python scripts/bench/vocabulary.py --data-root DATA [--vocabularies 2048,50257,70000] [--rounds 40]
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tokenizers
import torch

from p2p_tally import Federation, Source, simulate
from p2p_tally.ids import NodeName
from p2p_tally.learning.data.text import HOLDOUT_SHARE, read_text
from p2p_tally.learning.data.tokenizer import Tokenizer
from p2p_tally.learning.data.tokens import LastWindows, every_window, side_by_side
from p2p_tally.learning.data.wikitext import find
from p2p_tally.learning.setup import make_learner, prepare
from p2p_tally.node.formats import ballot_format
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.runner.runs.run import Run

NODES = 4
CONTEXT = 32
WINDOWS = 8  # probes a round, of CONTEXT votes each
WARMUP = 4
TEST_WINDOWS = 8
RIGHT = 0.4  # share of the votes of a better model that are right


@dataclass(frozen=True)
class Row:
    """One vocabulary. Bytes are those of one ballot."""

    vocabulary: int
    parameters: int
    distinct: int  # tokens that occur in the training text
    run: Run
    cpu: float  # seconds of a round of all peers, set-up and one evaluation included
    coded: float  # the mean of the run
    better: int  # coded, the votes of a better model
    ballots_ms: float  # to encode one of those and to decode those of the others
    sizes: dict[str, int]  # by formula


def tokenizer_across_words(text: str, vocabulary: int) -> Tokenizer:
    """A byte-pair tokenizer whose tokens may span several words, but not several lines."""
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary,
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    inner.train_from_iterator(text.splitlines(keepends=True), trainer)
    return Tokenizer(inner)


def source(root: Path, vocabulary: int) -> tuple[Source, int]:
    """WikiText-2 in so many tokens, and how many of them occur in its training text."""
    train_text, test_text = (read_text(path) for path in find(root, False, "--data-root"))
    tokenizer = tokenizer_across_words(train_text, vocabulary)
    train, test = tokenizer.encode(train_text), tokenizer.encode(test_text)
    data = Source(
        train=every_window(train, CONTEXT),
        test=side_by_side(test, CONTEXT),
        classes=vocabulary,
        input_shape=(CONTEXT,),
        holdout=(len(train) // HOLDOUT_SHARE - 1) // CONTEXT,
        default_model="tinygpt",
        hold_out=LastWindows(train, CONTEXT),
    )
    return data, len(np.unique(train))


def measured(root: Path, vocabulary: int, rounds: int) -> Row:
    data, distinct = source(root, vocabulary)
    federation = Federation(
        data=data,
        nodes=NODES,
        rounds=rounds,
        warmup=WARMUP,
        merge_every=0,
        partition="chunks",
        model="tinygpt:16x1",
        context=CONTEXT,
        vocabulary=vocabulary,
        local_steps=2,
        batch=8,
        lr=0.003,
        clip=1.0,
        probes_per_round=WINDOWS,
        ballot="coded",
        test_count=TEST_WINDOWS,
        eval_every=rounds,
    )
    task = prepare(federation)
    labels, others = (task.probes.labels_of(r) for r in (1, 2))
    assert labels is not None and others is not None
    votes = np.where(np.random.default_rng(0).random(len(labels)) < RIGHT, labels, others)
    ballots = ballot_format(federation, len(votes), vocabulary)
    ballot = ballots.encode(votes, labels)
    encoding = milliseconds(lambda: ballots.encode(votes, labels))
    decoding = milliseconds(lambda: ballots.decode(ballot, labels))
    started = time.process_time()
    run = simulate(federation, engine="exact")
    cpu = time.process_time() - started
    sent = run.lines[-1].sent["vote"]["payload"]
    return Row(
        vocabulary=vocabulary,
        parameters=len(make_learner(task, NodeName("node-0"), 0, "cpu").parameters),
        distinct=distinct,
        run=run,
        cpu=cpu / rounds,
        coded=sent / (rounds - WARMUP) / (NODES - 1),
        better=len(ballot),
        ballots_ms=encoding + (NODES - 1) * decoding,
        sizes=formulas(len(votes), vocabulary),
    )


def formulas(votes: int, vocabulary: int) -> dict[str, int]:
    return {
        "byte": BallotFormat("byte", votes, vocabulary).largest,
        "packed": BallotFormat("packed", votes, vocabulary).largest,
        "top-8 int8": BallotFormat("top-k", votes, vocabulary, 8, "int8").largest,
        "soft int8": BallotFormat("soft", votes, vocabulary, precision="int8").largest,
        "soft": BallotFormat("soft", votes, vocabulary).largest,
    }


def milliseconds(call: Callable[[], object], turns: int = 20) -> float:
    taken = []
    for _ in range(turns):
        started = time.perf_counter()
        call()
        taken.append(1000 * (time.perf_counter() - started))
    return statistics.median(taken)


def show(rows: list[Row]) -> None:
    print(f"bytes of a ballot of {WINDOWS * CONTEXT} votes")
    print("      V  byte  packed   coded  better  top-8 int8   soft int8        soft  soft/byte  soft/coded")
    for row in rows:
        sizes, soft = row.sizes, row.sizes["soft"]
        print(f"{row.vocabulary:7,}{sizes['byte']:6,}{sizes['packed']:8,}{row.coded:8.1f}{row.better:8,}", end="")
        print(f"{sizes['top-8 int8']:12,}{sizes['soft int8']:12,}{soft:12,}", end="")
        print(f"{soft / sizes['byte']:11,.0f}{soft / row.coded:12,.0f}")
    print(f"\n{NODES} peers: seconds of one peer in a round, by phase; CPU seconds of all peers")
    print("      V  parameters  tokens used  train   vote  ballots ms  learn    CPU  accuracy %  agreement")
    for row in rows:
        line, rounds = row.run.lines[-1], row.run.federation.rounds
        vote, learn = (line.seconds[phase] / (rounds - WARMUP) for phase in ("vote", "distill"))
        print(f"{row.vocabulary:7,}{row.parameters:12,}{row.distinct:13,}{line.seconds['train'] / rounds:7.3f}", end="")
        print(
            f"{vote:7.3f}{row.ballots_ms:12.2f}{learn:7.3f}{row.cpu:7.2f}{statistics.mean(line.accuracy):12.1f}", end=""
        )
        print(f"{line.agreement or 0:11.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, required=True, help="the folder with wikitext-2")
    parser.add_argument("--vocabularies", default="2048,50257,70000", help="[default: 2048,50257,70000]")
    parser.add_argument(
        "--rounds", type=int, default=40, help=f"of which the first {WARMUP} send nothing [default: 40]"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    show([measured(options.data_root, int(size), options.rounds) for size in options.vocabularies.split(",")])


if __name__ == "__main__":
    main()
