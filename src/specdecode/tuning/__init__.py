"""Searches for settings by measuring on this machine. Knows the library's own calls; no command line."""
