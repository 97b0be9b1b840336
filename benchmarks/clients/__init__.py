"""One counting job with kafkagroup and with the clients that Python users would take in its place."""
