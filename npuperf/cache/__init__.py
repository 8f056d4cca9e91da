"""What was read and found out before, kept beside the data or in the user's own folder, signed by who wrote it."""
