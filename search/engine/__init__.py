"""Where and when nets are trained. Ray lives in `pool`, and Ray Tune in `tune` and `leg`."""
