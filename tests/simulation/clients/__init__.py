"""The users of our code in the simulated world, in Spark's place, and the applications of other clients."""
