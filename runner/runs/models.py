"""The trained models of a run, by rank: each is loaded when it is asked for."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from p2p_tally.config import Federation
from p2p_tally.learning.architectures import of_rank
from p2p_tally.learning.data import DataOptions, Normalise
from p2p_tally.learning.data import load as load_source
from p2p_tally.learning.saved.about import OWN
from p2p_tally.learning.saved.file import ModelFile
from p2p_tally.learning.saved.loaded import TrainedModel, loaded


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
        item = of_rank(self._federation, rank).model
        own = item if file.about.is_own else None
        return loaded(file, model=own, normalise=self._own_normalise() if file.about.normalise == OWN else None)

    def _own_normalise(self) -> Normalise | None:
        """That of the user's own data source; or of their own probes, where the data has none."""
        for spec in (self._federation.data, self._federation.probes):
            source = load_source(spec, DataOptions())
            if source.normalise is not None:
                return source.normalise
        return None
