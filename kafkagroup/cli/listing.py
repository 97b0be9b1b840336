"""Rows to print, and how a table shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkagroup.admin.rows import Rows


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows to print.

    Attributes:
        name: Its name in a JSON document with several listings.
        rows: The rows.
        title: The title of the table.
        hidden: Columns that the table leaves out; JSON and CSV have all.
        total: What the last row of the table has in some columns.
        empty: What is printed instead of a table without rows.
        headings: What the table calls columns, if not by their names.
        first: The column with which the table begins; empty: the first one.
    """

    name: str
    rows: Rows[object]
    title: str = ""
    hidden: frozenset[str] = frozenset()
    total: Mapping[str, object] = field(default_factory=dict)
    empty: str = ""
    headings: Mapping[str, str] = field(default_factory=dict)
    first: str = ""
