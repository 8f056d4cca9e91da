"""Plain data: what a profile is, and what the verbs say of it: documents, from which schemas are derived."""
