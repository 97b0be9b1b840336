"""What is done for a release and not in CI: wheels with their papers, a rehearsal, and the matrix of versions."""
