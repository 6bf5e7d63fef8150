"""The trained models of a run, by rank: each is loaded when it is asked for."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from p2p_tally.config import Federation
from p2p_tally.learning.saved.file import ModelFile
from p2p_tally.learning.saved.loaded import TrainedModel
from p2p_tally.learning.saved.trusted import load_trusted


class RunModels:
    """`files`: the bytes of each model's file, or its path. The code of the run's own options is trusted."""

    def __init__(self, federation: Federation, files: Sequence[bytes | Path]) -> None:
        self._federation = federation
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[TrainedModel]:
        return (self[rank] for rank in range(len(self)))

    def __getitem__(self, rank: int) -> TrainedModel:
        rank = range(len(self))[rank]  # from the end too; IndexError where there is none
        held = self._files[rank]
        file = ModelFile.parse(held, f"model {rank}") if isinstance(held, bytes) else ModelFile.read(held)
        return load_trusted(file, self._federation, rank)
