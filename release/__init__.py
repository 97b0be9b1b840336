"""What is done for a release and not in CI: the wheels with their papers, and the matrix of versions."""
