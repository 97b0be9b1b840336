"""Values, not bytes: Avro records decoded with the schemas of a registry, as functions over Arrow record batches."""
