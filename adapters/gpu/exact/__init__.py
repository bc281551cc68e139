"""Exact mode: a token's bits do not depend on how many tokens are forwarded with it."""
