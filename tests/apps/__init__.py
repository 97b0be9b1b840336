"""Programs that tests run in a process of their own: Spark applications to kill, and consumers to meet."""
