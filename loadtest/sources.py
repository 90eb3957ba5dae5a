"""Downloaded files that a served artefact was built from, where the build has left them."""

import json
from pathlib import Path

from loadtest.downloads import cache_dir


def source(graph: Path, suffix: str) -> Path:
    """The source of `graph` that ends so, as its provenance names it. ValueError if none does."""
    provenance = graph.with_name(f"{graph.name}.json")
    found = [
        name for name in json.loads(provenance.read_text())["sources"] if name.endswith(suffix)
    ]
    if not found:
        raise ValueError(f"{provenance} names no {suffix} file among its sources")
    return cache_dir() / str(found[0])
