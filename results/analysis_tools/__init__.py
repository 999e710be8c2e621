"""What analyses share: hook points, ridge probes, corruptions, plots, files of results."""
