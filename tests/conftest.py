"""What holds for all tests: nothing reaches a network, and nothing is judged by its speed."""

import os

# Read when torch, tokenizers and huggingface_hub are first imported, so set before any of them.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["OMP_WAIT_POLICY"] = "passive"
os.environ["GOMP_SPINCOUNT"] = "0"

import hypothesis

hypothesis.settings.register_profile("anchorline", deadline=None)
hypothesis.settings.load_profile("anchorline")
