"""Whether a pipeline is to stop: conditions, locks, and what they are held against."""
