"""Release tools: build and audit wheels, rehearse a release, and run the tests with a matrix of versions."""
