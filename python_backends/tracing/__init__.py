"""Turns as OpenTelemetry spans, for whoever sends them to a collector: the front door, or a client.

Imports OpenTelemetry, which a server loads only when it is to send traces.
"""
