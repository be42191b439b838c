"""What a store says of itself: configuration, checkpoint, the releases that wrote it."""
