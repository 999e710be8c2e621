"""Measured latency: of one net (on_this_machine.py), of a run's nets (nets.py), its file (measurements.py).

The command is in cli/analyze.py.
"""

import logging

# Where CUDA's compiler is installed and no card is, torch's timer warns of that when it is imported.
logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
