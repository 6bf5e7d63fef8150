"""The command `features`: images to vectors, once. The command line is put together in cli.py."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from p2p_tally.cli_options import Json, print_json
from p2p_tally.config import NodeSettings
from p2p_tally.errors import ConfigError, DataError

if TYPE_CHECKING:
    from torch import Tensor

    from p2p_tally.learning.data import DataOptions, Source
    from p2p_tally.learning.features import Display, Extractor


def features(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="cifar10, cifar100, stl10, npz:FILE: images")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="write the features, for --data npz:FILE")] = None,
    like: Annotated[
        Path | None, typer.Option(metavar="FILE", help="embed as the features in this file, which has their extractor")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(metavar="MODULE:FUNCTION", help="embed with the torch module that it returns")
    ] = None,
    weights: Annotated[Path | None, typer.Option(metavar="FILE", help="weights for the --backbone's module")] = None,
    centroids: Annotated[int | None, typer.Option(metavar="K", help="patches in the dictionary [default: 512]")] = None,
    dimensions: Annotated[int | None, typer.Option(metavar="D", help="numbers an image [default: 256]")] = None,
    check: Annotated[bool, typer.Option("--check", help="train an MLP on all of them in one place; accuracy")] = False,
    data_root: Annotated[Path | None, typer.Option(metavar="FOLDER", help="folder of the named data sets")] = None,
    download: Annotated[bool, typer.Option("--download", help="fetch a named data set that is missing")] = False,
    device: Annotated[str, typer.Option(metavar="DEVICE", help="where the --backbone runs")] = "auto",
    as_json: Json = False,
) -> None:
    """Turn images into frozen features, learned without labels, on which peers train small models."""
    settings = NodeSettings.parse({"device": device, "data_root": data_root, "download": download})
    sizes = {name: value for name, value in (("centroids", centroids), ("dimensions", dimensions)) if value is not None}
    _go_together(out, like, backbone, weights, sizes)
    from p2p_tally.learning.data import DataOptions
    from p2p_tally.learning.features import Display, central_accuracy, write_features

    options = DataOptions(root=settings.data_root, download=settings.download)
    began = time.perf_counter()
    with Display(live=True) as display:
        if backbone is not None:
            made, extractor = _by_backbone(source, options, backbone, weights, settings.device, display), None
        elif like is not None:
            made, extractor = _alike(source, options, like, display)
        else:
            made, extractor = _learned(source, options, sizes, display)
    facts = _facts(source, made, extractor, like, backbone)
    facts |= {"cached": not display.used, "seconds": round(time.perf_counter() - began, 1)}
    if check and made.test is None:
        raise DataError(f"--check: {source} has no test set")
    if out is not None:
        try:
            write_features(out, _arrays(made), extractor)
        except OSError as error:
            raise DataError(f"--out {out}: {error.strerror}") from None
        facts["out"] = str(out)
    if check:
        assert made.test is not None
        train, test = central_accuracy(made.train, made.test, made.classes)
        facts["check"] = {"train_accuracy": round(train, 2), "test_accuracy": round(test, 2)}
    if as_json:
        print_json(facts)
    else:
        _show(facts)


def _go_together(
    out: Path | None, like: Path | None, backbone: str | None, weights: Path | None, sizes: dict[str, int]
) -> None:
    """Refuse options that contradict each other, before any work."""
    if like is not None and backbone is not None:
        raise ConfigError("--like and --backbone: accepted is one of them")
    if weights is not None and backbone is None:
        raise ConfigError(f"--weights {weights}: accepted with --backbone only")
    other = "--like" if like is not None else "--backbone"
    if (like is not None or backbone is not None) and sizes:
        raise ConfigError(f"--{next(iter(sizes))}: follows from {other}; accepted without it only")
    if (like is not None or backbone is not None) and out is None:
        raise ConfigError(f"{other}: needs --out FILE, to write the features to")
    if out is not None and (out.is_dir() or not out.parent.is_dir()):
        raise ConfigError(f"--out {out}: accepted is a file in a folder that is there")


def _learned(
    spec: str, options: "DataOptions", sizes: dict[str, int], display: "Display"
) -> tuple["Source", "Extractor"]:
    from torch import get_num_threads

    from p2p_tally.learning.data.features import load_features
    from p2p_tally.learning.features import Parts, Recipe, read_extractor

    kept = load_features(spec, options, Recipe(**sizes), Parts(get_num_threads(), display))
    return kept, read_extractor(kept.extractor, str(kept.extractor))


def _alike(spec: str, options: "DataOptions", like: Path, display: "Display") -> tuple["Source", "Extractor"]:
    from torch import get_num_threads

    from p2p_tally.learning.data.features import images_of, with_inputs
    from p2p_tally.learning.features import Parts, embed, read_extractor

    extractor = read_extractor(like, f"--like {like}")
    images = images_of(spec, replace(options, for_probes=True))
    extractor.check(images.input_shape, f"--like {like}")
    parts = Parts(get_num_threads(), display)
    return with_inputs(images, lambda examples, what: embed(extractor, examples, parts, what)), extractor


def _by_backbone(
    spec: str, options: "DataOptions", backbone: str, weights: Path | None, device: str, display: "Display"
) -> "Source":
    from p2p_tally.learning.data.features import images_of, with_inputs
    from p2p_tally.learning.features import Backbone
    from p2p_tally.learning.setup import pick_device

    module = Backbone(backbone, weights, pick_device(device))
    images = images_of(spec, replace(options, for_probes=True))
    return with_inputs(images, lambda examples, what: module.embed(examples, display, what))


def _arrays(made: "Source") -> dict[str, "Tensor"]:
    """The arrays of the file: those of a task, or those of a pool of probes."""
    from p2p_tally.learning.data import every_index

    splits = {"": made.train} if made.test is None else {"_train": made.train, "_test": made.test}
    arrays = {}
    for split, examples in splits.items():
        x, y = examples.take(every_index(examples))
        arrays["x" + split] = x
        if y is not None:
            arrays["y" + split] = y
    return arrays


def _facts(
    spec: str, made: "Source", extractor: "Extractor | None", like: Path | None, backbone: str | None
) -> dict[str, Any]:
    return {
        "source": spec,
        "images": len(made.train),
        "test_images": 0 if made.test is None else len(made.test),
        "dimensions": made.input_shape[0],
        "centroids": None if extractor is None else len(extractor.dictionary.centroids),
        "like": None if like is None else str(like),
        "backbone": backbone,
    }


def _show(facts: dict[str, Any]) -> None:
    test = f" and {facts['test_images']:,} test images" if facts["test_images"] else ""
    print(f"{facts['source']}: {facts['images']:,} images{test} as {facts['dimensions']} numbers each")
    if facts["backbone"]:
        print(f"embedded with {facts['backbone']}")
    elif facts["like"]:
        print(f"embedded with the extractor in {facts['like']}")
    else:
        print(f"learned from the {facts['images']:,} training images, no labels: {facts['centroids']} centroids")
    where = f"written: {facts['out']}" if "out" in facts else f"kept for --data features:{facts['source']}"
    print(f"{where}; {'read from the cache' if facts['cached'] else 'computed'} in {facts['seconds']} s")
    if "check" in facts:
        accuracy = facts["check"]
        print(
            f"an MLP with 128 hidden units, trained on all of them in one place: test {accuracy['test_accuracy']:.2f} %"
            f" (training {accuracy['train_accuracy']:.2f} %)"
        )
