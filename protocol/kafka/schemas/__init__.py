"""Kafka's message definitions, and the codecs that are compiled from them.

The JSON files here define the APIs that kafka-python's package lacks, in Kafka's own form; all others come from there.
"""
