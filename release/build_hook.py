"""The build hook: a release of kafkagroup depends on its native engine, and a build from a clone does not.

No index has an engine of a clone's version, so `pip install .` could not install this dependency. `./run wheels` sets
`KAFKAGROUP_RELEASE`. The PKG-INFO of an sdist keeps its dependencies, and hatchling takes them from there.
"""

import os
import sys
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: The environment variable that is set, and not empty, in a build for publication.
RELEASE = "KAFKAGROUP_RELEASE"


class DependenciesHook(MetadataHookInterface):
    """Adds `dependencies` to the project's metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the dependencies, unless the sdist of this build has set them."""
        if "dependencies" in metadata:
            return
        # pip builds without the project's folder in `sys.path`.
        sys.path.insert(0, self.root)
        try:
            from kafka_source.version import __version__
            from release.targets import native_requirements
        finally:
            sys.path.remove(self.root)
        native = native_requirements(__version__) if os.environ.get(RELEASE) else []
        metadata["dependencies"] = [*self.config["dependencies"], *native]
