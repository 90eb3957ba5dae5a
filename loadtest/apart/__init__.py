"""Stages on several servers and hosts: the wire between them, and what a turn loses by it."""
