"""Requests and responses as classes: one module for each API, generated from Kafka's message definitions.

`python -m protocol.kafka.messages.generate` writes them anew; a test says when that is to be done.
"""
