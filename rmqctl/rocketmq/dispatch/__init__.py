"""Dispatch (reput): from records of the log to units of queues and entries of the index, as brokers make them.

One set of rules for three users: per record (`request`, `queue_units`, `index_put`) for the store engine, by columns
(`columns`, `QueueState.put_many`, `index_build`) for rebuilding and for the replay of a recovery.
"""
