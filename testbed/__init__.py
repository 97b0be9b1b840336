"""Systems for tests and benchmarks: clusters of real processes, hosts with networks, and a steady load of records."""
