"""What a log and the files beside it amount to: ends, producers, transactions, groups, the cluster's metadata."""
