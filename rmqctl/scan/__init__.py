"""Going through large files: parts that several processes work on."""
