"""Tuning with AOE: what it left, read and judged."""
