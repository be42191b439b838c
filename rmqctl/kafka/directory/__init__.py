"""Which files and partitions lie in log directories, what their names mean, and which releases wrote them."""
