"""Plain data: what a profile is and what an analysis says. No input, no output."""
