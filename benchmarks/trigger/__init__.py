"""How well `targetTriggerDuration` is kept."""
