"""The project's version, in one place: the build, `kafkagroup.__version__` and the native crate's test read it."""

__version__ = "0.1.0"
