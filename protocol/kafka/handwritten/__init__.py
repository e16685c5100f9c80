"""Codecs of the busiest messages, written by hand because the compiled ones are slower. Tests compare both."""
