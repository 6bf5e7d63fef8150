"""A model loaded with the federation that trained it: the code that its own options name may run."""

from p2p_tally.config import Federation
from p2p_tally.learning.architectures import of_rank
from p2p_tally.learning.data import DataOptions, Normalise
from p2p_tally.learning.data import load as load_source
from p2p_tally.learning.saved.about import OWN
from p2p_tally.learning.saved.file import ModelFile
from p2p_tally.learning.saved.loaded import TrainedModel, loaded


def load_trusted(file: ModelFile, federation: Federation, rank: int) -> TrainedModel:
    """The model of the node with this rank, ready for use."""
    own = of_rank(federation, rank).model if file.about.is_own else None
    return loaded(file, model=own, normalise=_own_normalise(federation) if file.about.normalise == OWN else None)


def _own_normalise(federation: Federation) -> Normalise | None:
    """That of the user's own data source; or of their own probes, where the data has none."""
    for spec in (federation.data, federation.probes):
        source = load_source(spec, DataOptions())
        if source.normalise is not None:
            return source.normalise
    return None
