"""Commands on a trained model: predict, evaluate, export. The command line is put together in cli.py."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from p2p_tally.cli_options import Json, print_json
from p2p_tally.config import NodeSettings
from p2p_tally.errors import ConfigError

if TYPE_CHECKING:
    from p2p_tally.learning.saved.inputs import Inputs
    from p2p_tally.learning.saved.loaded import TrainedModel

ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="a file that a run has saved: NAME.safetensors")]
Own = Annotated[
    str | None,
    typer.Option("--model", metavar="package.module:function", help="for a model of your own: what builds it"),
]
DataRoot = Annotated[Path | None, typer.Option(metavar="FOLDER", help="folder of the named data sets")]
Download = Annotated[bool, typer.Option("--download", help="fetch a named data set that is missing")]
Device = Annotated[str, typer.Option(metavar="DEVICE", help="where the model lives")]


def predict(
    path: ModelFile,
    data: Annotated[
        list[str],
        typer.Option(
            metavar="SOURCE",
            help="npz:FILE with x, image files or folders of them (repeatable), text:FILE, or the test set of a source",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write the table there as CSV [default: to the terminal]")
    ] = None,
    model: Own = None,
    data_root: DataRoot = None,
    download: Download = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """What a trained model says of examples: a line each, with its class and how sure it is."""
    from p2p_tally.learning.saved.predict import predict as predictions_of
    from p2p_tally.runner.report.predictions import rows_of, write_rows

    ready, inputs, where = _prepared(path, model, data, data_root, download, device)
    found = predictions_of(ready, inputs, where)
    if as_json:
        labels = None if found.labels is None else found.labels.tolist()
        values = {"predictions": found.classes.tolist(), "probabilities": found.probabilities.tolist()}
        print_json({"model": str(path), **values, "labels": labels, "names": list(inputs.names)})
        return
    rows = rows_of(found, inputs)
    if out is None:
        try:
            write_rows(sys.stdout, rows)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    try:
        with out.open("w", encoding="utf-8", newline="") as file:
            write_rows(file, rows)
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror}; accepted is a file that can be written") from None
    print(f"written: {out}")


def evaluate(
    path: ModelFile,
    data: Annotated[str, typer.Option(metavar="SOURCE", help="whose test set; or npz:FILE with x and y")],
    test_count: Annotated[
        int | None, typer.Option(min=1, metavar="P", help="test examples, the first ones [default: all]")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="draw which classes are taken for which: .svg, .png or .pdf")
    ] = None,
    model: Own = None,
    data_root: DataRoot = None,
    download: Download = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """How good a trained model is: accuracy, and which classes it takes for which. For a run's own test set the
    accuracy is the one that the run reported."""
    from p2p_tally.learning.saved.predict import evaluate as assess
    from p2p_tally.runner.console.assessment import print_assessment
    from p2p_tally.runner.report.confusion_figure import confusion_figure

    ready, inputs, where = _prepared(path, model, data, data_root, download, device, test_count)
    found = assess(ready, inputs, where)
    is_text = inputs.tokenizer is not None
    confusion = None if is_text else found.confusion
    if plot is not None:
        if confusion is None:
            raise ConfigError(f"--plot {plot}: accepted for models of at most 1000 classes, and not for text")
        confusion_figure(confusion, f"{path.name} on {data}: {found.accuracy:.2f} %", plot)
    if not as_json:
        print_assessment(found, confusion, f"{path.name} on {data}", is_text)
        return
    values = {"model": str(path), "examples": found.count, "accuracy": found.accuracy, "loss": found.loss}
    more = {"perplexity": found.perplexity} if is_text else {}
    print_json({**values, **more, "confusion": None if confusion is None else confusion.tolist()})


def export(
    path: ModelFile,
    out: Annotated[Path, typer.Option(metavar="FILE.onnx", help="where to write it")],
    model: Own = None,
) -> None:
    """Write a trained model as ONNX, normalisation included, for programs without torch."""
    from p2p_tally.learning.saved.loaded import load
    from p2p_tally.learning.saved.onnx_file import export_onnx

    export_onnx(load(path, model=model), out)
    print(f"written: {out}")


def _prepared(
    path: Path,
    own: str | None,
    data: str | list[str],
    root: Path | None,
    download: bool,
    device: str,
    count: int | None = None,
) -> "tuple[TrainedModel, Inputs, str]":
    """The model, what it is used on, and the device. One thread, as in a run: others sum floats in another order."""
    import torch

    from p2p_tally.learning.saved.about import OWN
    from p2p_tally.learning.saved.file import ModelFile as Saved
    from p2p_tally.learning.saved.inputs import Finder, first
    from p2p_tally.learning.saved.loaded import loaded
    from p2p_tally.learning.setup import pick_device

    torch.set_num_threads(1)
    where = pick_device(NodeSettings.parse({"device": device}).device)
    file = Saved.read(path)
    finder = Finder(file.about, root, download)
    inputs = finder.to_predict(data) if isinstance(data, list) else first(finder.to_test(data), count)
    normalise = inputs.normalise if file.about.normalise == OWN else None
    return loaded(file, model=own, normalise=normalise), inputs, where
