"""Ranking on accuracy per compute: objectives, Pareto fronts, gains, seed noise."""
