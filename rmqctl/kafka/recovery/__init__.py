"""What a broker does to log directories when it starts, replayed on a view that writes nothing (spec 13)."""
