"""Anchorline: a server for hybrid language models that resumes conversations from exact state."""

import os

# A spinning OpenMP pool makes a small forward hundreds of times slower on a busy machine, and
# the variables are read once, when torch is first imported: so they are set before anything else.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

__version__ = "0.1.0"
