//! The borrowed buffers of an Arrow array of any type.

use arrow_schema::DataType;

use crate::arrays::{Binary, LargeBinary, Outside, Validity};

/// An array and its children.
#[derive(Debug)]
pub struct Cells<'a> {
    pub kind: &'a DataType,
    pub validity: Validity<'a>,
    /// The position of the first row in the buffers. Row 0 of a struct is row 0 of its children.
    pub first: usize,
    /// The values, or the offsets of texts, lists and maps.
    pub values: &'a [u8],
    /// The bytes of texts.
    pub data: &'a [u8],
    pub children: Vec<Cells<'a>>,
}

/// The values of a `binary` or `utf8` array, by their positions in the buffers. No value is null.
#[derive(Clone, Copy, Debug)]
pub enum Texts<'a> {
    Small(Binary<'a>),
    Large(LargeBinary<'a>),
}

/// The ranges of lists or maps, by their positions in the buffers.
#[derive(Clone, Copy, Debug)]
pub enum Lists<'a> {
    Small(&'a [[u8; 4]]),
    Large(&'a [[u8; 8]]),
}

/// Whole numbers, dates or times, by their positions in the buffers.
#[derive(Clone, Copy, Debug)]
pub enum Whole<'a> {
    Byte(&'a [u8]),
    Short(&'a [[u8; 2]]),
    Int(&'a [[u8; 4]]),
    Long(&'a [[u8; 8]]),
}

impl<'a> Cells<'a> {
    /// Returns the values of a column that is stored as whole numbers of up to 64 bits.
    pub fn whole(&self) -> Whole<'a> {
        match self.kind.primitive_width() {
            Some(1) => Whole::Byte(self.values),
            Some(2) => Whole::Short(self.values.as_chunks().0),
            Some(4) => Whole::Int(self.values.as_chunks().0),
            _ => Whole::Long(self.values.as_chunks().0),
        }
    }

    pub fn texts(&self) -> Texts<'a> {
        let all = Validity(None);
        match self.kind {
            DataType::LargeUtf8 | DataType::LargeBinary => {
                Texts::Large(LargeBinary::new(all, 0, self.values, self.data))
            }
            _ => Texts::Small(Binary::new(all, 0, self.values, self.data)),
        }
    }

    pub fn lists(&self) -> Lists<'a> {
        match self.kind {
            DataType::LargeList(_) => Lists::Large(self.values.as_chunks().0),
            _ => Lists::Small(self.values.as_chunks().0),
        }
    }
}

impl<'a> Texts<'a> {
    #[inline(always)]
    pub fn get(self, at: usize) -> Result<&'a [u8], Outside> {
        match self {
            Self::Small(texts) => texts.get(at),
            Self::Large(texts) => texts.get(at),
        }?
        .ok_or(Outside)
    }

    /// Returns whether these rows, and the bytes between them, are ASCII; false for rows outside the buffers.
    pub fn are_ascii(self, first: usize, rows: usize) -> bool {
        match self {
            Self::Small(texts) => texts.are_ascii(first, rows),
            Self::Large(texts) => texts.are_ascii(first, rows),
        }
    }
}

impl Whole<'_> {
    #[inline(always)]
    pub fn get(self, at: usize) -> Result<i64, Outside> {
        match self {
            Self::Byte(values) => values.get(at).map(|&value| i64::from(value as i8)),
            Self::Short(values) => values.get(at).map(|&value| i16::from_le_bytes(value).into()),
            Self::Int(values) => values.get(at).map(|&value| i32::from_le_bytes(value).into()),
            Self::Long(values) => values.get(at).map(|&value| i64::from_le_bytes(value)),
        }
        .ok_or(Outside)
    }
}

impl Lists<'_> {
    /// Returns where a list starts and ends in the array of its items.
    #[inline(always)]
    pub fn get(self, at: usize) -> Result<(usize, usize), Outside> {
        let (start, end) = match self {
            Self::Small(offsets) => {
                let &[start, end] = offsets.get(at..).and_then(|tail| tail.first_chunk()).ok_or(Outside)?;
                (i64::from(i32::from_le_bytes(start)), i64::from(i32::from_le_bytes(end)))
            }
            Self::Large(offsets) => {
                let &[start, end] = offsets.get(at..).and_then(|tail| tail.first_chunk()).ok_or(Outside)?;
                (i64::from_le_bytes(start), i64::from_le_bytes(end))
            }
        };
        match (usize::try_from(start), usize::try_from(end)) {
            (Ok(start), Ok(end)) if start <= end => Ok((start, end)),
            _ => Err(Outside),
        }
    }
}
