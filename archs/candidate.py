"""A candidate of a search: a net and, where the recipe is searched with it, the recipe's genes.

These have names of their own, "recipe.lr", and change no net: its key, costs and features are those of its other genes.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

RECIPE = "recipe."  # before the name of a recipe's field


def recipe_genes(genes: Mapping[str, Any]) -> dict[str, Any]:
    """The genes that belong to the recipe, under their full names."""
    return {name: value for name, value in genes.items() if name.startswith(RECIPE)}


def tuned_values(genes: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the recipe's fields that genes set, by field; {} where the recipe is not searched."""
    return {name.removeprefix(RECIPE): value for name, value in recipe_genes(genes).items()}


def candidate_key(net: str, genes: Mapping[str, Any]) -> str:
    """Key of a candidate: that of the net; with recipe genes 12 hexadecimal digits of both."""
    tuned = recipe_genes(genes)
    if not tuned:
        return net
    return hashlib.sha256(json.dumps([net, tuned], sort_keys=True).encode()).hexdigest()[:12]
