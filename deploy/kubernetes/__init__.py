"""Manifests of a plan: a kustomize base, and an overlay to begin with."""
