"""What uses our code in the simulated world, as Spark does, and the applications of other clients."""
