"""Text: the tokenizer and its cache, windows of tokens, what is held out, and what is said of unfit texts."""

import hashlib
import lzma
import random
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError, DataError
from p2p_tally.ids import NodeName
from p2p_tally.learning.data import DataOptions, load, wikitext
from p2p_tally.learning.data.files import CACHE
from p2p_tally.learning.data.partition import partition
from p2p_tally.learning.data.text import TextSource
from p2p_tally.learning.data.tokenizer import LONGEST_LINE, Tokenizer
from p2p_tally.learning.data.tokens import LastWindows, TokenExamples, every_window, side_by_side, token_type
from p2p_tally.learning.setup import make_learner, prepare

VOCABULARY, CONTEXT = 300, 16


def prose(words: int, seed: int = 0) -> str:
    """Text with enough repetition for a few dozen merges."""
    choose = random.Random(seed)
    known = ["".join(choose.choices("aeioklmnrst", k=choose.randint(2, 7))) for _ in range(60)]
    return "".join(choose.choice(known) + choose.choice([" ", " ", " ", ".\n"]) for _ in range(words))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(prose(2000), VOCABULARY, "a test")


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text(prose(4000))
    return path


def options(**more: Any) -> DataOptions:
    return DataOptions(**{"vocabulary": VOCABULARY, "context": CONTEXT, **more})


def load_text(path: Path, **more: Any) -> TextSource:
    source = load(f"text:{path}", options(**more))
    assert isinstance(source, TextSource)
    return source


# --- the tokenizer


@settings(max_examples=30)
@given(text=st.text(max_size=200))
def test_any_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    tokens = tokenizer.encode(text)
    assert tokens.dtype == np.uint16
    assert tokenizer.decode(tokens) == text


def test_a_long_line_is_cut_and_comes_back(tokenizer: Tokenizer) -> None:
    text = "kolane " * (2 * LONGEST_LINE // 7)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_training_twice_makes_the_same_tokenizer(tokenizer: Tokenizer, tmp_path: Path) -> None:
    again = Tokenizer.train(prose(2000), VOCABULARY, "a test")
    for name, one in (("first", tokenizer), ("again", again)):
        one.save(tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "again").read_bytes()
    assert len(again) == VOCABULARY
    text = prose(500, seed=1)
    assert np.array_equal(Tokenizer.load(tmp_path / "first").encode(text), again.encode(text))
    assert len(again.encode(text)) < len(text)


@pytest.mark.parametrize(("vocabulary", "kind"), [(256, np.uint16), (65_536, np.uint16), (65_537, np.uint32)])
def test_tokens_are_kept_in_as_few_bytes_as_name_them_all(vocabulary: int, kind: type) -> None:
    assert token_type(vocabulary) is kind
    assert np.array([vocabulary - 1]).astype(token_type(vocabulary))[0] == vocabulary - 1


def test_a_token_past_two_bytes_comes_back() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = [f"w{number}" for number in range(65_537)]
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: n for n, word in enumerate(words)}, "w0"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    assert Tokenizer(inner).encode("w65536 w1").tolist() == [65_536, 1]


# --- windows

windows = st.tuples(st.integers(1, 9), st.integers(0, 200))  # context, tokens


@given(shape=windows)
def test_every_window_predicts_the_token_that_follows(shape: tuple[int, int]) -> None:
    context, length = shape
    tokens = np.arange(length).astype(np.uint16)
    examples = every_window(tokens, context)
    assert len(examples) == max(0, length - context)
    x, y = examples.take(torch.arange(len(examples)))
    assert y is not None and x.dtype == torch.int64 and tuple(x.shape) == tuple(y.shape) == (len(examples), context)
    assert torch.equal(y, x + 1)
    assert not len(examples) or int(y.max()) == length - 1
    assert examples.probes_each == context and examples.labels is None


@given(shape=windows)
def test_windows_side_by_side_predict_each_token_once(shape: tuple[int, int]) -> None:
    context, length = shape
    examples = side_by_side(np.arange(length).astype(np.uint16), context)
    _, y = examples.take(torch.arange(len(examples)))
    assert y is not None
    assert y.flatten().tolist() == list(range(1, len(examples) * context + 1))
    assert length - 1 - len(examples) * context < context


@given(shape=windows, data=st.data())
def test_what_is_held_out_is_the_end_and_no_private_window_reaches_it(
    shape: tuple[int, int], data: st.DataObject
) -> None:
    context, length = shape
    tokens = np.arange(length).astype(np.uint16)
    most = (length - context - 2) // context
    if most < 1:
        return
    count = data.draw(st.integers(1, most))
    pool, private = LastWindows(tokens, context)(count, 0)
    assert len(pool) == count and len(private) >= 1
    public_x, public_y = pool.take(torch.arange(count))
    private_x, private_y = private.take(torch.arange(len(private)))
    assert public_y is not None and private_y is not None
    assert int(public_y.max()) == length - 1
    assert int(private_y.max()) < int(public_x.min()) and int(private_x.min()) == 0
    with pytest.raises(ConfigError, match=f"^--probe-count {most + 1}: accepted is at most {most}"):
        LastWindows(tokens, context)(most + 1, 0)


@given(count=st.integers(1, 60), nodes=st.integers(1, 12))
def test_chunks_are_contiguous_and_hold_every_example_once(count: int, nodes: int) -> None:
    examples = every_window(np.arange(count + 3).astype(np.uint16), 3)
    if count < nodes:
        with pytest.raises(DataError):
            partition(examples, "chunks", nodes, 0)
        return
    starts = [
        shard.take(torch.arange(len(shard)))[0][:, 0].tolist() for shard in partition(examples, "chunks", nodes, 0)
    ]
    assert [start for shard in starts for start in shard] == list(range(count))
    assert max(map(len, starts)) - min(map(len, starts)) <= 1


def test_a_subset_of_a_subset() -> None:
    examples = (
        every_window(np.arange(50).astype(np.uint16), 4).subset(torch.arange(10, 20)).subset(torch.tensor([0, 9]))
    )
    assert isinstance(examples, TokenExamples) and len(examples) == 2
    assert examples.take(torch.tensor([1, 0]))[0][:, 0].tolist() == [19, 10]


# --- a text as a task


def test_a_file_becomes_a_task(book: Path) -> None:
    source = load_text(book)
    assert (source.classes, source.input_shape, source.default_model) == (VOCABULARY, (CONTEXT,), "tinygpt")
    text, read = book.read_text(), Tokenizer.load(source.tokenizer)
    assert isinstance(source.train, TokenExamples) and isinstance(source.test, TokenExamples)
    assert source.train.tokens.dtype == np.uint16
    assert read.decode(source.train.tokens) + read.decode(source.test.tokens) == text
    assert len(read.decode(source.test.tokens)) == len(text) // 10
    assert source.holdout == (len(source.train.tokens) // 20 - 1) // CONTEXT


def test_a_federation_on_a_text_trains_votes_and_evaluates(book: Path) -> None:
    federation = Federation(
        data=f"text:{book}", vocabulary=VOCABULARY, context=CONTEXT, partition="chunks", nodes=3, rounds=10,
        width=16, depth=1, batch=4, probes_per_round=3, probe_count=20, clip=1.0, lr=1e-2,
    )  # fmt: skip
    task = prepare(federation)
    assert task.probes.labelled and task.probes.votes_per_round == 3 * CONTEXT
    peer = make_learner(task, NodeName("node-1"), 1, "cpu")
    before = peer.evaluate()
    assert before.loss == pytest.approx(np.log(VOCABULARY), rel=0.1)
    for _ in range(10):
        peer.train()
    answer = peer.vote(1)
    assert isinstance(answer, np.ndarray) and answer.shape == (3 * CONTEXT,)
    after = peer.evaluate()
    assert after.loss < before.loss - 0.5 and after.accuracy > before.accuracy


def test_a_second_start_reads_the_cache(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_text(book).train.take(torch.arange(5))[0]
    monkeypatch.setattr(Tokenizer, "train", None)  # calling it would fail
    assert torch.equal(load_text(book).train.take(torch.arange(5))[0], first)
    with pytest.raises(TypeError):
        load_text(book, vocabulary=VOCABULARY + 1)  # another vocabulary is another tokenizer


@pytest.mark.parametrize("name", ["train.npy", "test.npy", "tokenizer.json"])
def test_a_damaged_cache_is_built_again(book: Path, name: str) -> None:
    source = load_text(book)
    expected = source.train.take(torch.arange(len(source.train)))[0]
    kept = source.tokenizer.parent / name
    kept.write_bytes(kept.read_bytes()[:-7])
    again = load_text(book)
    assert torch.equal(again.train.take(torch.arange(len(again.train)))[0], expected)
    assert len(Tokenizer.load(again.tokenizer)) == VOCABULARY


def test_the_cache_stands_under_the_data_root_where_one_is_given(book: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert load_text(book, root=root).tokenizer.is_relative_to(root / CACHE)
    assert load_text(book).tokenizer.is_relative_to(book.parent / CACHE)


def test_another_text_as_probes_is_written_in_the_tasks_tokens(book: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("entirely other words, again and again\n" * 40)
    task = load_text(book)
    probes = load(f"text:{other}", options(for_probes=True, task=task), flag="--probes")
    assert isinstance(probes.train, TokenExamples) and probes.classes == VOCABULARY
    read = Tokenizer.load(task.tokenizer)
    text = other.read_text()
    assert read.decode(probes.train.tokens) == text[: len(text) - len(text) // 10]
    digits = load("digits", options())
    with pytest.raises(DataError, match=r"^--probes text:.*: a text can only be the probes of a text$"):
        load(f"text:{other}", options(for_probes=True, task=digits), flag="--probes")


# --- texts that are not fit


@pytest.mark.parametrize(
    ("content", "more", "message"),
    [
        (b"", {}, r"the training text has 0 bytes; --context 16 needs at least 17"),
        (b"too short", {}, r"the training text has 9 bytes; --context 16 needs"),
        (b"ab" * 40, {}, r"the test text has 8 bytes; --context 16 needs at least 17: take a longer text"),
        (b"good \xff bad" * 99, {}, r"not UTF-8 text: byte 5 is 0xff"),
        (prose(300).encode(), {"vocabulary": 5000}, r"^--vocabulary 5000: .*book.txt supports at most \d+ tokens"),
        (b"abcd" * 200, {"vocabulary": 256, "context": 80}, r"the test text has 80 bytes; --context 80 needs"),
    ],
)
def test_unfit_texts_get_one_line(tmp_path: Path, content: bytes, more: dict[str, int], message: str) -> None:
    path = tmp_path / "book.txt"
    path.write_bytes(content)
    with pytest.raises((DataError, ConfigError), match=message) as caught:
        load_text(path, **more)
    assert "\n" not in str(caught.value)


def test_missing_files_and_bad_options(book: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere.txt: No such file"):
        load_text(tmp_path / "nowhere.txt")
    with pytest.raises(ConfigError, match="accepted is text:FILE"):
        load("text", options())
    with pytest.raises(
        ConfigError, match=r"^--vocabulary 17000000: accepted is .* to 16777216 \(a vote is at most three bytes\)"
    ):
        Federation.parse({"vocabulary": 17_000_000})
    with pytest.raises(ConfigError, match=r"^--vocabulary 17000000: accepted is 256"):
        load_text(book, vocabulary=17_000_000)
    federation = Federation(data=f"text:{book}", vocabulary=VOCABULARY, context=CONTEXT, nodes=2, probe_count=20)
    with pytest.raises(DataError, match=r"^--partition dirichlet:0.4: .*accepted for this data is chunks or iid"):
        prepare(federation.model_copy(update={"partition": "dirichlet:0.4"}))
    assert prepare(federation).federation.partition == "chunks"  # by itself
    mlp = federation.model_copy(update={"model": "mlp"})
    with pytest.raises(ConfigError, match=r"^--model mlp: on inputs torch.int64 \(16,\) of text:.* it fails"):
        make_learner(prepare(mlp), NodeName("node-0"), 0, "cpu")


# --- WikiText-2


@pytest.fixture
def small_wikitext(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Texts that are taken for the published ones; file name -> content."""
    texts, published = {}, {}
    for kind in ("raw", "tokens"):
        named = {f"wiki.{split}.{kind}": f"{kind} {prose(1500, seed=len(split))}" for split in ("train", "valid")}
        texts |= {name: text.encode() for name, text in named.items()}
        published[kind] = {name: (len(texts[name]), hashlib.sha256(texts[name]).hexdigest()) for name in named}
    monkeypatch.setattr(wikitext, "PUBLISHED", published)
    return texts


def write(folder: Path, texts: dict[str, bytes], kind: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        if name.endswith(kind):
            (folder / name).write_bytes(text)


def test_raw_text_is_preferred_wherever_it_lies(tmp_path: Path, small_wikitext: dict[str, bytes]) -> None:
    write(tmp_path / "wikitext-2", small_wikitext, "tokens")
    assert wikitext.find(tmp_path, False, "")[0].name == "wiki.train.tokens"
    write(tmp_path, small_wikitext, "raw")
    assert wikitext.find(tmp_path, False, "") == (tmp_path / "wiki.train.raw", tmp_path / "wiki.valid.raw")
    write(tmp_path / "wikitext-2-raw", small_wikitext, "raw")
    assert wikitext.find(tmp_path, False, "")[0].parent.name == "wikitext-2-raw"
    source = load("wikitext2", options(root=tmp_path))
    assert isinstance(source, TextSource) and isinstance(source.train, TokenExamples)
    assert Tokenizer.load(source.tokenizer).decode(source.train.tokens) == small_wikitext["wiki.train.raw"].decode()


def test_missing_and_incomplete_files_are_named(tmp_path: Path, small_wikitext: dict[str, bytes]) -> None:
    with pytest.raises(DataError, match=r"^--data wikitext2: no wiki.train.raw or wiki.train.tokens in .*--download"):
        load("wikitext2", options(root=tmp_path))
    write(tmp_path / "wikitext-2", small_wikitext, "tokens")
    valid = tmp_path / "wikitext-2" / "wiki.valid.tokens"
    valid.write_bytes(valid.read_bytes()[:1000])
    with pytest.raises(DataError, match=r"wiki.valid.tokens is incomplete: 1000 of \d+ bytes; .*text:FILE"):
        load("wikitext2", options(root=tmp_path))
    valid.unlink()
    with pytest.raises(DataError, match=r"wiki.valid.tokens is missing"):
        load("wikitext2", options(root=tmp_path))


def test_another_edition_is_used_with_a_warning(
    tmp_path: Path, small_wikitext: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, {name: text + b"more" for name, text in small_wikitext.items()}, "raw")
    load("wikitext2", options(root=tmp_path))
    assert "not the published WikiText-2" in caplog.text


def test_a_download_is_checked_and_put_in_place_whole(
    tmp_path: Path, small_wikitext: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "archive.zip"
    with zipfile.ZipFile(archive, "w") as members:
        for name, text in small_wikitext.items():
            if name.endswith("raw"):
                members.writestr(f"wikitext-2-raw/{name}", text)
    monkeypatch.setattr(wikitext, "URL", archive.as_uri())
    root = tmp_path / "root"
    with pytest.raises(DataError, match="the archive is not the published one; nothing was changed"):
        load("wikitext2", options(root=root, download=True))
    assert [path.name for path in root.iterdir() if not path.name.endswith(".lock")] == []
    monkeypatch.setattr(wikitext, "ARCHIVE_SHA256", hashlib.sha256(archive.read_bytes()).hexdigest())
    write(root / "wikitext-2-raw", {"wiki.train.raw": b"half"}, "raw")
    assert isinstance(load("wikitext2", options(root=root, download=True)), TextSource)
    assert (root / "wikitext-2-raw" / "wiki.train.raw").read_bytes() == small_wikitext["wiki.train.raw"]
    assert (root / "wikitext-2-raw.incomplete-1" / "wiki.train.raw").read_bytes() == b"half"


def test_ten_megabytes_take_seconds_once(shared_data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "wikitext-2"
    folder.mkdir()
    for packed in (shared_data / "wikitext2").glob("wiki.*.tokens.xz"):
        (folder / packed.stem).write_bytes(lzma.decompress(packed.read_bytes()))
    started = time.process_time()
    first = load("wikitext2", DataOptions(root=tmp_path))
    took = time.process_time() - started
    started = time.process_time()
    again = load("wikitext2", DataOptions(root=tmp_path))
    assert time.process_time() - started < took / 5
    assert took < 60  # processor seconds, about eight on an old laptop
    assert first.classes == again.classes == 2048
    assert len(first.train) == len(again.train) > 3_000_000
