"""The world: clients, a machine and its faults over the real rules, by one seed."""
