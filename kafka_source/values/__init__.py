"""Values instead of bytes: Avro and Protobuf, with the schemas of a registry, and JSON, in Arrow record batches."""
