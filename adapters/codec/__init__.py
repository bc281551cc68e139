"""Lossless compression of parts by byte planes, and crc32c."""
