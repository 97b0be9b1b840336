"""The build's hook: a release of kafkagroup depends on its native engine, and a build from a clone does not.

The engine of a clone's version is on no index, so `pip install .` could not find it. `./run wheels` sets
`KAFKAGROUP_RELEASE`; what an sdist was built with stays in its PKG-INFO, and hatchling takes it from there.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: Set, and not empty, where what is built will be published.
RELEASE = "KAFKAGROUP_RELEASE"


class DependenciesHook(MetadataHookInterface):
    """Adds `dependencies` to the project's metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the dependencies, unless the sdist that is built from has brought them."""
        if "dependencies" in metadata:
            return
        # pip builds without the project's folder on the path.
        sys.path.insert(0, self.root)
        try:
            from kafka_source.version import __version__
            from release.targets import native_requirements
        finally:
            sys.path.remove(self.root)
        native = native_requirements(__version__) if os.environ.get(RELEASE) else []
        metadata["dependencies"] = [*self.config["dependencies"], *native]
