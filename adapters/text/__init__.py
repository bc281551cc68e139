"""Tokenizers, chat templates, and the formats models write their output in."""
