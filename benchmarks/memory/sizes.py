"""The sizes of processes, from /proc."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

MEGABYTE = 1_000_000


@dataclass
class Peaks:
    """The largest sizes in the samples so far, in bytes.

    Attributes:
        samples: The number of samples.
        all_rss: The resident size of all processes together; pages that they share count in each.
        all_pss: Their proportional size together: each page counts once, if no other process has it.
        pss: Each process's proportional size, by process id.
    """

    samples: int = 0
    all_rss: int = 0
    all_pss: int = 0
    pss: dict[int, int] = field(default_factory=dict)

    def sample(self, pids: Sequence[int]) -> None:
        """Look at all processes that still run."""
        rss = pss = 0
        for pid in pids:
            try:
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except (FileNotFoundError, ProcessLookupError):
                # It has ended.
                continue
            own = _field(text, "Pss")
            rss += _field(text, "Rss")
            pss += own
            self.pss[pid] = max(own, self.pss.get(pid, 0))
        self.samples += 1
        self.all_rss, self.all_pss = max(self.all_rss, rss), max(self.all_pss, pss)


def _field(text: str, name: str) -> int:
    line = next((line for line in text.splitlines() if line.startswith(name + ":")), None)
    # A process that has ended and was not waited for has no sizes.
    return 0 if line is None else int(line.split()[1]) * 1024
