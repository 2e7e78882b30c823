"""Fuzzers of every decoder in ext: mutated inputs, whole and then byte by byte."""
