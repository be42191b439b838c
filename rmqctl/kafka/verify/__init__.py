"""The checks of a log directory, one module a subject; :mod:`~rmqctl.kafka.verify.driver` runs them."""
