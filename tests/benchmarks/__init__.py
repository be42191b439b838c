"""Speed as ratios between two things measured in one run; never a test that can fail on a busy machine."""
