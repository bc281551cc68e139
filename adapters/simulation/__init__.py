"""Faults on demand, in an order that a seed decides."""
