"""Several copies of one partition: how they relate, what each lacks, which may lead, and what they have together."""
