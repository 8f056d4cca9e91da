"""Bytes to model: find the files of a profile and read them, with bounded memory and nothing lost silently."""
