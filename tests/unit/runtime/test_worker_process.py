"""A worker's loaded modules cost its garbage collections nothing from the second task on."""

import subprocess
import sys

SCRIPT = """
import gc
from kafka_source.runtime.spark_processes import prepare_worker

counts = []
for _ in range(3):
    prepare_worker(None)
    gc.collect()
    counts.append((gc.get_freeze_count(), len(gc.get_objects())))
garbage = []
garbage.append(garbage)
del garbage
print(counts[0][0], counts[1][0] > 1000, counts[2][0] == counts[1][0], counts[2][1] < 1000, gc.collect())
"""


def test_what_the_first_task_loaded_is_not_looked_at_again_and_later_garbage_is() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True", "True", "True", "1"]
