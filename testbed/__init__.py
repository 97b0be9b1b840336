"""Systems that tests and benchmarks run against: a Spark cluster of real processes, and a steady load of records."""
