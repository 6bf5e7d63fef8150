"""Values as JSON can hold them."""

import math
from typing import Any


def plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: what is not known, or beyond all bounds, is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
