"""Traces for other viewers: what npuperf found beside the original, and the whole profile."""
