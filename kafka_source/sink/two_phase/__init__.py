"""The exactly-once sink: transactions that the tasks leave open, and the decision that commits them."""
