"""Clocks, threads and memory of the machine."""
