"""What the bytes are: a construct schema for every file of a store, and nothing else."""
