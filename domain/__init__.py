"""Values and rules: pure, deterministic, standard library and numpy arrays only."""
