"""Event loop, Ray worker pool, Ray Tune, progress display, doctor. Only `pool`, `tune` and `doctor` import Ray."""
