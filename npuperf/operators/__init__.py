"""Operators: their sums, and what their hardware counters say."""
