"""Rows of one type that become a pandas DataFrame or an Arrow table by one call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from kafkagroup.admin.row_schema import arrow_schema, record

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_Row = TypeVar("_Row", covariant=True)


class Rows(tuple[_Row, ...]):
    """An immutable sequence of frozen dataclasses, which knows their type, so that an empty one has columns too.

    Args:
        kind: The dataclass of the rows.
        rows: The rows.
    """

    kind: type[_Row]

    def __new__(cls, kind: type[_Row], rows: Iterable[_Row] = ()) -> Rows[_Row]:  # noqa: D102 - see the class
        made = super().__new__(cls, rows)
        made.kind = kind
        return made

    def __getnewargs__(self) -> tuple[type[_Row], tuple[_Row, ...]]:
        return self.kind, tuple(self)

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as JSON values, by the names of their columns."""
        return [record(row) for row in self]

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table; nested values are structs and lists."""
        import pyarrow as pa

        return pa.Table.from_pylist(self.records(), schema=arrow_schema(self.kind))

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a DataFrame of pandas, which must be installed; numbers that can be missing are Int64."""
        import pandas as pd
        import pyarrow as pa

        return self.to_arrow().to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
