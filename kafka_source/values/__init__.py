"""Values, not bytes: Avro and Protobuf decoded with the schemas of a registry, and JSON, over Arrow record batches."""
