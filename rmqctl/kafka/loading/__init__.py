"""The load of one partition as a broker does it when it starts, on a view that writes nothing (spec 13.1 to 13.4)."""
