"""What everything stands on: errors, sentences, files, processes, the cache. Nothing here knows what a profile is."""

__version__ = "0.1.0"
