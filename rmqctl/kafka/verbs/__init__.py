"""What the verbs of a log directory answer (`rmqctl.answer`)."""
