"""Triton's kernels run in its interpreter here: set before anything imports Triton.

On a CUDA device they are held by scripts/gpu-check.
"""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")
