"""What everything stands on: errors, sentences, files, processes, the cache. Nothing here knows what a profile is."""

__all__ = ["__version__"]

try:
    from npuperf.base._version import __version__  # of a wheel: that of its tag (hatch_build.py)
except ModuleNotFoundError:
    __version__ = "0.1.0"
