"""The commit log: the scan, its blocks, their columns, the records at known places."""
