"""Use cases: synchronous and step-driven; no threads, no clock, no files."""
