"""What the inside needs of the outside: protocols in units and promises."""
