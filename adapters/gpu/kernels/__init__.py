"""Planes and sums where the bytes stand: Triton on CUDA, torch and numpy elsewhere."""
