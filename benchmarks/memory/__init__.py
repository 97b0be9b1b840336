"""Memory of Python workers while they read."""
