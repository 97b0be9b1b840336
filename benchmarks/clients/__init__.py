"""One counting job with kafkagroup and with other clients for Python."""
