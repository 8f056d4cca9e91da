"""Running the same work for many ranks."""
