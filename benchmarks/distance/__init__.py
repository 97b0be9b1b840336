"""Reading over a distance: a proxy with delay and bandwidth between Spark and the broker."""
