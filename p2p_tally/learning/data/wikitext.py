"""Where WikiText-2's files are in a folder, whether they are whole, and how to fetch them."""

import hashlib
import logging
import shutil
import urllib.request
import zipfile
from pathlib import Path

from p2p_tally.errors import DataError
from p2p_tally.learning.data.download import download_folder

log = logging.getLogger(__name__)

# The original address is gone; this copy of the original archive is pinned to one commit and checked.
URL = (
    "https://huggingface.co/datasets/ggml-org/ci/resolve/927b3642933080f1b0e811e2f916e14c292992f9/wikitext-2-raw-v1.zip"
)
ARCHIVE_SHA256 = "ef7edb566e3e2b2d31b29c1fdb0c89a4cc683597484c3dc2517919c615435a11"
TIMEOUT = 30  # seconds without a byte

# Folders that the two public archives unpack to, and the data folder itself.
FOLDERS = ("wikitext-2-raw", "wikitext-2", ".")

# Bytes and SHA-256 of the published files. Raw text first: `tokens` has <unk> for rare words.
PUBLISHED = {
    "raw": {
        "wiki.train.raw": (10_940_747, "6707892fa3788b5ab9ed78ab5ff37d9fe825f6011a2ad4fcd6a6d467f0e7da57"),
        "wiki.valid.raw": (1_146_846, "4cd0f6876d07a413aa911261ff6d363c72d757d47f0fdd6015702014c89cb9c7"),
    },
    "tokens": {
        "wiki.train.tokens": (10_797_148, "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f"),
        "wiki.valid.tokens": (1_121_681, "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"),
    },
}


def find(root: Path, download: bool, flag: str) -> tuple[Path, Path]:
    """The training and the validation text: the raw ones where there are such, else the tokenised ones."""
    problem = _problem(root)
    if problem and download:
        download_folder(root, FOLDERS[0], _fetch, lambda: not _problem(root), flag)
        problem = _problem(root)
    found = _look(root)
    if problem or found is None:
        raise DataError(f"{flag}: {problem}; put the whole file there, or add --download (your own text is text:FILE)")
    for path in found:
        if hashlib.sha256(path.read_bytes()).hexdigest() != _published(path)[1]:
            log.warning("%s: not the published WikiText-2, so figures do not compare", path)
    return found


def _look(root: Path) -> tuple[Path, Path] | None:
    for published in PUBLISHED.values():
        for folder in FOLDERS:
            train, valid = (root / folder / name for name in published)
            if train.is_file():
                return train, valid
    return None


def _problem(root: Path) -> str:
    """What keeps the files from being used, if anything. One cut short is refused, another edition is not."""
    found = _look(root)
    if found is None:
        return f"no wiki.train.raw or wiki.train.tokens in {root} or its folders {FOLDERS[0]} and {FOLDERS[1]}"
    for path in found:
        if not path.is_file():
            return f"{path} is missing"
        length, whole = path.stat().st_size, _published(path)[0]
        if length < whole:
            return f"{path} is incomplete: {length} of {whole} bytes"
    return ""


def _published(path: Path) -> tuple[int, str]:
    return PUBLISHED[path.suffix[1:]][path.name]


def _fetch(aside: Path) -> None:
    archive = aside / "archive.zip"
    with urllib.request.urlopen(URL, timeout=TIMEOUT) as response, archive.open("wb") as file:
        shutil.copyfileobj(response, file)
    if hashlib.sha256(archive.read_bytes()).hexdigest() != ARCHIVE_SHA256:
        raise RuntimeError(f"{URL}: the archive is not the published one")
    with zipfile.ZipFile(archive) as members:
        members.extractall(aside)
