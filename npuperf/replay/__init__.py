"""The measured run as a program that can be run again with other host and device times."""
