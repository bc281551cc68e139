"""Metrics in Prometheus' format and the request journal in the log."""
