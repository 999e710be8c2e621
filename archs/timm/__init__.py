"""timm's models beside ours: made by name (models), counted, and turned into our networks and back (conversion)."""

from .conversion import convert, load, read, timm_key, to_timm
from .models import count, count_timm, create, create_args, flop_counter

__all__ = [
    "convert",
    "count",
    "count_timm",
    "create",
    "create_args",
    "flop_counter",
    "load",
    "read",
    "timm_key",
    "to_timm",
]
