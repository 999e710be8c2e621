"""Latency of nets, on this machine or on devices; begin at on_device.py. The command is in cli/analyze.py."""

import logging

# Where CUDA's compiler is installed and no card is, torch's timer warns of that when it is imported.
logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
