"""The outside: everything that touches a device, a file, a socket or a terminal."""
