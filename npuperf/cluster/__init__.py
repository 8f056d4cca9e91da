"""What only several ranks together tell."""
