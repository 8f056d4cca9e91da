"""What a result is held against: earlier results, gates, locks."""
