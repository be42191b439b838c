"""The verbs of a RocketMQ store: what each answers, put together from the rooms of the family."""
