"""What all members of a federation share: options as a text, and the public probes as a file.

Both are fixed when the federation is founded; the members' list has their digests. A newcomer gets them with its
admission.
"""

import io
from typing import Any

import numpy as np
import tomli_w

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.data import every_index
from p2p_tally.learning.data.probes import ProbePool
from p2p_tally.learning.data.token_probes import token_probes
from p2p_tally.learning.methods import method_of
from p2p_tally.learning.setup import Task
from p2p_tally.own_objects import import_object

# A newcomer gets these with its admission, and holds them in memory until they are checked.
PROBES_BYTES = 64 << 20
OPTIONS_BYTES = 64 << 10

# Options of a federation that each member has of its own, or that follow from the members' list or the file of probes.
OWN = frozenset({"data", "partition", "augment", "test_count", "eval_every", "tail"})
_FOLLOWING = frozenset({"nodes", "probes", "probe_count", "join", "leave"})
_REFUSED = {
    "anchor": "it is cut from data that all members would need; put labelled probes into the file of probes",
    "init": "the others would not have the file; they get the parameters when they join",
}


def options_text(federation: Federation) -> bytes:
    """The options that all members share, as they are sent and stored."""
    for name, why in _REFUSED.items():
        if getattr(federation, name):
            raise ConfigError(f"--{name} {getattr(federation, name)}: not in a federation with a members' list: {why}")
    values = federation.model_dump(exclude_none=True, mode="json", exclude=OWN | _FOLLOWING | set(_REFUSED))
    return tomli_w.dumps(dict(sorted(values.items()))).encode()


def probes_file(task: Task) -> bytes:
    """The pool of probes as an .npz file, of a text with the tokenizer. A ConfigError if it is too large to be sent."""
    if task.tokenizer is None:
        content = _archive(task.probes)
    else:
        content = token_probes(task.probes.examples, task.tokenizer, task.classes)
    if len(content) > PROBES_BYTES:
        raise ConfigError(
            f"--probes {task.federation.probes}: {len(content)} bytes; accepted are at most {PROBES_BYTES}, because "
            "everybody who joins gets them; choose fewer with --probe-count"
        )
    return content


def _archive(pool: ProbePool) -> bytes:
    x, y = pool.examples.take(every_index(pool.examples))
    arrays: dict[str, Any] = {"x": x.numpy()}
    if y is not None:
        arrays["y"] = y.numpy()
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def check_imports(federation: Federation) -> None:
    """Refuse a federation whose model or method is a module of somebody's that is not installed here."""
    for flag, value in (("--model", federation.model), ("--method", federation.method)):
        for item in str(value).split(","):
            if ":" in item and "." in item.partition(":")[0]:
                import_object(item, flag)
    method_of(federation)
