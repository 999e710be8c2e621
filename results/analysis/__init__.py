"""The papers' analyses of trained nets: one analysis a file, each a function of any net and its images.

Every analysis leaves the net as it was (state dict, modes, hooks, gradients) and says in its docstring
what it measures, by which paper's definition, and what it needs.
"""
