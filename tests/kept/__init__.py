"""What queries of earlier versions left behind, kept as text; a folder for each commit that wrote it."""
