"""What a trained model is used on: sources, arrays, images, text; and what does not fit, in one line each."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from p2p_tally.errors import ConfigError, DataError
from p2p_tally.learning.data.images import PerChannel
from p2p_tally.learning.data.tokenizer import Tokenizer
from p2p_tally.learning.saved.about import About
from p2p_tally.learning.saved.image_files import image_paths, read_images
from p2p_tally.learning.saved.inputs import Finder, first

DIGITS = About("mlp", 0, 0, (64,), 10)
PIXELS = About("cnn", 0, 0, (3, 4, 4), 3, PerChannel((0.5,) * 3, (0.25,) * 3))


def test_the_test_set_of_a_source_is_that_of_the_runs_seed() -> None:
    one, other = (Finder(About("mlp", 0, 0, (64,), 10, seed=seed)).to_test("digits").parts[0] for seed in (0, 1))
    assert len(one) == len(other) == 400
    assert not torch.equal(one.take(torch.arange(400))[0], other.take(torch.arange(400))[0])


def test_arrays_of_inputs_alone_and_with_labels(tmp_path: Path) -> None:
    x = np.zeros((5, 64), np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    np.savez(tmp_path / "xy.npz", x=x, y=np.arange(5))
    finder = Finder(DIGITS)
    assert len(finder.to_predict([f"npz:{tmp_path}/x.npz"]).parts[0]) == 5
    assert len(finder.to_test(f"npz:{tmp_path}/xy.npz").parts[0]) == 5
    with pytest.raises(DataError, match=r"x\.npz: has no labels to compare with; accepted is a data set with labels$"):
        finder.to_test(f"npz:{tmp_path}/x.npz")


def test_the_first_examples_only() -> None:
    inputs = Finder(DIGITS).to_test("digits")
    assert len(first(inputs, 7).parts[0]) == 7
    assert first(inputs, None) is inputs
    with pytest.raises(ConfigError, match=r"^--test-count 401: accepted is at most the 400 test examples$"):
        first(inputs, 401)


def test_what_does_not_fit_the_model_is_said(tmp_path: Path) -> None:
    np.savez(tmp_path / "short.npz", x=np.zeros((5, 63), np.float32))
    np.savez(tmp_path / "high.npz", x=np.zeros((5, 64), np.float32), y=np.full(5, 10))
    finder = Finder(DIGITS)
    with pytest.raises(DataError, match=r"short\.npz: inputs of shape \(63,\); the model takes \(64,\)$"):
        finder.to_predict([f"npz:{tmp_path}/short.npz"])
    with pytest.raises(DataError, match=r"high\.npz: labels up to class 10; the model knows 10 classes$"):
        finder.to_test(f"npz:{tmp_path}/high.npz")
    with pytest.raises(DataError, match=r"^--data text:a\.txt: a text, and the model takes \(64,\)$"):
        finder.to_test("text:a.txt")
    with pytest.raises(ConfigError, match=r"^--data nowhere: accepted is one of .* or package\.module:function$"):
        finder.to_predict(["nowhere"])
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"^--data nowhere: no such file; accepted several times are image files"):
        finder.to_predict([f"{tmp_path}/a.png", "nowhere"])
    with pytest.raises(DataError, match=r"a\.png: the model was not trained on pixels 0 to 255; accepted is a data "):
        finder.to_predict([f"{tmp_path}/a.png"])


# --- images


def test_images_have_the_models_size_and_channels(tmp_path: Path) -> None:
    colours = np.zeros((4, 4, 3), np.uint8)
    colours[..., 0], colours[..., 2] = 200, 7
    Image.fromarray(colours).save(tmp_path / "b.png")
    Image.fromarray(np.full((9, 12), 50, np.uint8)).save(tmp_path / "a.png")  # grey, and larger
    (tmp_path / "notes.txt").write_text("no image")
    inputs = Finder(PIXELS).to_predict([str(tmp_path)])
    assert inputs.names == [str(tmp_path / "a.png"), str(tmp_path / "b.png")]
    x, y = inputs.parts[0].take(torch.arange(2))
    assert y is None and x.dtype == torch.uint8
    assert torch.equal(x[0], torch.full((3, 4, 4), 50, dtype=torch.uint8))
    assert x[1, :, 0, 0].tolist() == [200, 0, 7]
    assert read_images([tmp_path / "b.png"], (1, 2, 6)).shape == (1, 1, 2, 6)


def test_what_is_no_image_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"^--data \S+a\.png: not an image that can be read$"):
        read_images([tmp_path / "a.png"], (3, 4, 4))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty: no image in that folder; accepted are \.bmp, \.gif, "):
        image_paths([tmp_path / "empty"])


# --- text


@pytest.fixture
def text_model(tmp_path: Path) -> About:
    text = "the tally of the votes of the peers " * 40
    (tmp_path / "long.txt").write_text(text)
    Tokenizer.train(text, 260, "here").save(tmp_path / "tokenizer.json")
    return About("tinygpt", 8, 1, (16,), 260, tokenizer=(tmp_path / "tokenizer.json").read_text())


def test_a_text_is_read_by_the_models_own_tokenizer(text_model: About, tmp_path: Path) -> None:
    tokenizer = Tokenizer.parse(text_model.tokenizer or "", "m")
    text = (tmp_path / "long.txt").read_text()
    tokens = tokenizer.encode(text)
    whole = Finder(text_model).to_predict([f"text:{tmp_path}/long.txt"])
    rows = [part.take(torch.arange(len(part)))[0] for part in whole.parts]
    assert torch.cat([row.flatten() for row in rows]).tolist() == tokens.tolist()
    assert "".join(whole.names) == text
    assert [part.probes_each for part in whole.parts] == [16, len(tokens) % 16]

    tested = Finder(text_model).to_test(f"text:{tmp_path}/long.txt").parts[0]
    x, y = tested.take(torch.arange(1))
    kept = tokenizer.encode(text[len(text) - len(text) // 10 :])
    assert x[0].tolist() == kept[:16].tolist() and y is not None and y[0].tolist() == kept[1:17].tolist()


def test_a_text_that_is_too_short_or_empty_is_said(text_model: About, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "short.txt").write_text("the")
    finder = Finder(text_model)
    with pytest.raises(DataError, match=r"empty\.txt: is empty$"):
        finder.to_predict([f"text:{tmp_path}/empty.txt"])
    with pytest.raises(DataError, match=r"short\.txt: the test text has 0 tokens; --context 16 needs at least 17"):
        finder.to_test(f"text:{tmp_path}/short.txt")
    assert len(finder.to_predict([f"text:{tmp_path}/short.txt"]).parts) == 1


def test_a_tokenizer_that_is_none_or_another_is_refused(tmp_path: Path, text_model: About) -> None:
    bad = About("tinygpt", 8, 1, (16,), 260, tokenizer="{}")
    with pytest.raises(DataError, match=r"^the model: its tokenizer cannot be read \([^\n]*\)$"):
        Finder(bad).to_test("text:a.txt")
    other = About("tinygpt", 8, 1, (16,), 300, tokenizer=text_model.tokenizer)
    with pytest.raises(DataError, match=r"^the model has 300 classes, and its tokenizer 260 tokens$"):
        Finder(other).to_test("text:a.txt")
