//! Arrow arrays as borrowed buffers. Every access is checked, because an array's offsets may be invalid.

/// The error of a row that lies outside the buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside;

/// The validity bitmap of an array; None if no row is null.
#[derive(Clone, Copy, Debug, Default)]
pub struct Validity<'a>(pub Option<&'a [u8]>);

impl Validity<'_> {
    /// Returns whether row `at` of the buffers is not null.
    #[inline(always)]
    pub fn is_set(self, at: usize) -> Result<bool, Outside> {
        match self.0 {
            None => Ok(true),
            Some(bits) => bits.get(at / 8).map(|byte| byte >> (at % 8) & 1 == 1).ok_or(Outside),
        }
    }
}

/// An offset of Arrow: a signed number of 32 or 64 bits.
pub trait Offset: Copy {
    /// Returns the offset as an index; None if it is negative.
    fn index(self) -> Option<usize>;
}

impl Offset for [u8; 4] {
    #[inline(always)]
    fn index(self) -> Option<usize> {
        usize::try_from(i32::from_le_bytes(self)).ok()
    }
}

impl Offset for [u8; 8] {
    #[inline(always)]
    fn index(self) -> Option<usize> {
        usize::try_from(i64::from_le_bytes(self)).ok()
    }
}

/// Rows that are ranges in another array or buffer; each offset of a range has `N` bytes.
#[derive(Clone, Copy, Debug)]
struct Ranges<'a, const N: usize> {
    validity: Validity<'a>,
    /// The position of the array's first row in the buffers.
    first: usize,
    offsets: &'a [[u8; N]],
}

impl<'a, const N: usize> Ranges<'a, N>
where
    [u8; N]: Offset,
{
    fn new(validity: Validity<'a>, first: usize, offsets: &'a [u8]) -> Self {
        Self { validity, first, offsets: offsets.as_chunks().0.get(first..).unwrap_or_default() }
    }

    #[inline(always)]
    fn get(&self, row: usize) -> Result<Option<(usize, usize)>, Outside> {
        if !self.validity.is_set(self.first.checked_add(row).ok_or(Outside)?)? {
            return Ok(None);
        }
        let [start, end] = self.offsets.get(row..).and_then(|tail| tail.first_chunk::<2>()).ok_or(Outside)?;
        match (start.index(), end.index()) {
            (Some(start), Some(end)) if start <= end => Ok(Some((start, end))),
            _ => Err(Outside),
        }
    }
}

/// An array of byte strings, whose offsets have `N` bytes each.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a, const N: usize> {
    ranges: Ranges<'a, N>,
    data: &'a [u8],
}

/// A `binary` or `utf8` array.
pub type Binary<'a> = Bytes<'a, 4>;

/// A `large_binary` or `large_utf8` array.
pub type LargeBinary<'a> = Bytes<'a, 8>;

impl<'a, const N: usize> Bytes<'a, N>
where
    [u8; N]: Offset,
{
    /// Borrows the buffers of an array; `first` is the array's offset in rows.
    pub fn new(validity: Validity<'a>, first: usize, offsets: &'a [u8], data: &'a [u8]) -> Self {
        Self { ranges: Ranges::new(validity, first, offsets), data }
    }

    #[inline(always)]
    pub fn get(&self, row: usize) -> Result<Option<&'a [u8]>, Outside> {
        match self.ranges.get(row)? {
            Some((start, end)) => self.data.get(start..end).map(Some).ok_or(Outside),
            None => Ok(None),
        }
    }

    /// Returns whether all bytes of `rows` rows, from row `first` on, are ASCII; false if a row is outside the buffers.
    pub fn are_ascii(&self, first: usize, rows: usize) -> bool {
        let at = |row: usize| self.ranges.offsets.get(row)?.index();
        let end = first.checked_add(rows).and_then(at);
        let bytes = at(first).zip(end).and_then(|(start, end)| self.data.get(start..end));
        bytes.is_some_and(<[u8]>::is_ascii)
    }
}

/// An `int32` array.
#[derive(Clone, Copy, Debug)]
pub struct Int32<'a> {
    validity: Validity<'a>,
    first: usize,
    values: &'a [[u8; 4]],
}

impl<'a> Int32<'a> {
    pub fn new(validity: Validity<'a>, first: usize, values: &'a [u8]) -> Self {
        Self { validity, first, values: values.as_chunks().0.get(first..).unwrap_or_default() }
    }

    #[inline(always)]
    pub fn get(&self, row: usize) -> Result<Option<i32>, Outside> {
        if !self.validity.is_set(self.first.checked_add(row).ok_or(Outside)?)? {
            return Ok(None);
        }
        self.values.get(row).map(|&bytes| Some(i32::from_le_bytes(bytes))).ok_or(Outside)
    }
}

/// A `list<struct<key, value>>` array.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a> {
    lists: Ranges<'a, 4>,
    keys: Binary<'a>,
    values: Binary<'a>,
}

/// The key and value of a header. The encoder refuses a null key, which Kafka does not allow.
pub type Header<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

impl<'a> Headers<'a> {
    pub fn new(validity: Validity<'a>, first: usize, offsets: &'a [u8], keys: Binary<'a>, values: Binary<'a>) -> Self {
        Self { lists: Ranges::new(validity, first, offsets), keys, values }
    }

    /// Returns the headers of a row; a null row has no headers.
    pub fn get(&self, row: usize) -> Result<impl Iterator<Item = Result<Header<'a>, Outside>>, Outside> {
        let (start, end) = self.lists.get(row)?.unwrap_or_default();
        Ok((start..end).map(move |at| Ok((self.keys.get(at)?, self.values.get(at)?))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int32(values: &[i32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn a_slice_starts_at_its_offset() {
        let offsets = int32(&[0, 1, 3, 3, 6]);
        let array = Binary::new(Validity(Some(&[0b11101])), 1, &offsets, b"abbddd");
        assert_eq!(array.get(0), Ok(None));
        assert_eq!(array.get(1), Ok(Some(&b""[..])));
        assert_eq!(array.get(2), Ok(Some(&b"ddd"[..])));
        assert_eq!(array.get(3), Err(Outside));
        let values = int32(&[7, 8, -9]);
        let array = Int32::new(Validity(Some(&[0b101])), 1, &values);
        assert_eq!([array.get(0), array.get(1), array.get(2)], [Ok(None), Ok(Some(-9)), Ok(None)]);
    }

    #[test]
    fn what_the_buffers_do_not_hold_is_outside() {
        let get = |offsets: &[i32], first: usize, row: usize| {
            let offsets = int32(offsets);
            Binary::new(Validity(None), first, &offsets, b"abc").get(row).is_ok()
        };
        assert!(get(&[0, 3], 0, 0));
        assert!(!get(&[0, 4], 0, 0));
        assert!(!get(&[-1, 2], 0, 0));
        assert!(!get(&[2, 1], 0, 0));
        assert!(!get(&[0], 0, 0));
        assert!(!get(&[], 0, 0));
        assert!(!get(&[0, 3], 1, 0));
        assert!(!get(&[0, 3], usize::MAX, 1));
        assert_eq!(Binary::new(Validity(Some(&[])), 0, &int32(&[0, 1]), b"a").get(0), Err(Outside));
        assert_eq!(Int32::new(Validity(None), 0, &[0, 0, 0]).get(0), Err(Outside));
    }

    #[test]
    fn large_offsets_have_64_bits() {
        let of = |offsets: [i64; 2]| {
            let offsets: Vec<u8> = offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
            LargeBinary::new(Validity(None), 0, &offsets, b"abc").get(0).map(|row| row.map(<[u8]>::to_vec))
        };
        assert_eq!(of([1, 3]), Ok(Some(b"bc".to_vec())));
        for outside in [[1, 1 << 32 | 3], [-1, 3], [i64::MIN, 3], [2, 1]] {
            assert_eq!(of(outside), Err(Outside), "{outside:?}");
        }
    }

    #[test]
    fn rows_are_ascii_if_all_their_bytes_are() {
        let offsets = int32(&[0, 1, 3, 6]);
        let array = Binary::new(Validity(None), 0, &offsets, "aßbcd".as_bytes());
        for (first, rows, ascii) in [
            (0, 1, true),
            (0, 2, false),
            (1, 1, false),
            (2, 1, true),
            (3, 0, true),
            (2, 2, false),
            (usize::MAX, 1, false),
        ] {
            assert_eq!(array.are_ascii(first, rows), ascii, "{first} {rows}");
        }
    }

    #[test]
    fn headers_are_found_by_the_lists_offsets() {
        let (lists, ends) = (int32(&[0, 0, 2, 4]), int32(&[0, 1, 2, 3, 4]));
        let keys = Binary::new(Validity(None), 1, &ends, b"xabc");
        let values = Binary::new(Validity(Some(&[0b10])), 0, &ends, b"1234");
        let array = Headers::new(Validity(Some(&[0b011])), 0, &lists, keys, values);
        let row = |row| array.get(row).and_then(|headers| headers.collect::<Result<Vec<_>, _>>());
        assert_eq!(row(0), Ok(vec![]));
        assert_eq!(row(1), Ok(vec![(Some(&b"a"[..]), None), (Some(&b"b"[..]), Some(&b"2"[..]))]));
        assert_eq!(row(2), Ok(vec![]));
        assert_eq!(row(8), Err(Outside));
        let array = Headers::new(Validity(None), 0, &lists, keys, values);
        assert!(array.get(2).unwrap().any(|header| header == Err(Outside)));
        let descending = int32(&[2, 1]);
        assert!(Headers::new(Validity(None), 0, &descending, keys, values).get(0).is_err());
    }
}
