"""Splits: seeded, stratified, made once. Digests that identify data, and moments that normalise them."""

from __future__ import annotations

import hashlib

import numpy as np

SEED = 0  # the split belongs to the data, not to the run: runs stay comparable
SHARES = (0.6, 0.2, 0.2)  # train, validation, test of a set in one piece
VAL_SHARE = 0.1  # of train, where a set has no validation split
CHUNK = 1024


def three_ways(y_N: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Train, validation and test places, each class split by SHARES."""
    random = np.random.default_rng(SEED)
    parts: tuple[list[np.ndarray], ...] = ([], [], [])
    for label in range(int(y_N.max()) + 1):
        places = random.permutation(np.flatnonzero(y_N == label))
        ends = np.rint(np.cumsum(SHARES)[:2] * len(places)).astype(int)
        for part, chunk in zip(parts, np.split(places, ends), strict=True):
            part.append(chunk)
    train, val, test = (random.permutation(np.concatenate(part)) for part in parts)
    return train, val, test


def two_ways(y_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Train and validation places: VAL_SHARE of each class, at least one image, is validation."""
    random = np.random.default_rng(SEED)
    train, val = [], []
    for label in range(int(y_N.max()) + 1):
        places = random.permutation(np.flatnonzero(y_N == label))
        cut = max(1, round(VAL_SHARE * len(places)))
        val.append(places[:cut])
        train.append(places[cut:])
    return random.permutation(np.concatenate(train)), random.permutation(np.concatenate(val))


def digest(*parts: np.ndarray) -> str:
    """Hex SHA-256 of the values of arrays, in order."""
    found = hashlib.sha256()
    for part in parts:
        found.update(np.ascontiguousarray(part).data)
    return found.hexdigest()


def moments(x_NCHW: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel; the latter at least 1e-6."""
    channels, pixels = x_NCHW.shape[1], x_NCHW.shape[0] * x_NCHW.shape[2] * x_NCHW.shape[3]
    mean, spread = np.zeros(channels), np.zeros(channels)
    chunks = [x_NCHW[at : at + CHUNK] for at in range(0, len(x_NCHW), CHUNK)]
    for chunk in chunks:
        mean += chunk.sum(axis=(0, 2, 3), dtype=np.float64) / pixels
    for chunk in chunks:
        off = chunk.astype(np.float64) - mean[None, :, None, None]
        spread += np.square(off).sum(axis=(0, 2, 3)) / pixels
    std = np.maximum(np.sqrt(spread), 1e-6)
    return tuple(mean.tolist()), tuple(std.tolist())
