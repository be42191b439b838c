"""Which files a broker store has, where they lie, how large they should be."""
