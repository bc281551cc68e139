"""The index of a storage as an SQLite database."""
