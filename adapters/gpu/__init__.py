"""Models run by transformers on torch, on a CPU or a CUDA device."""
