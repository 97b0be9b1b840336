//! Reads the text of one value into a column, and finds bad values.

use crate::json::plan::{Fields, Items, Named, Node};
use crate::json::scalars;
use crate::values::budget::Budget;
use crate::values::column::{Bytes, Column, Data, MISMATCH, end};
use crate::values::fault::{ENTRY, Fault, ITEM};

/// The limit on nesting in skipped fields.
const MAX_DEPTH: usize = 500;

const NOT_JSON: &str = "not valid JSON";
const NOT_UTF8: &str = "the value is not UTF-8";
const TOO_DEEP: &str = "values are nested more than 500 deep";
const TRAILING: &str = "something follows the JSON value";
const NO_NUMBER: &str = "not a number";
const NO_STRING: &str = "not a string";
const NO_ZONE: &str = "the timestamp has no offset from UTC; declare it as timestamp_ntz";

pub struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    /// The last string with escapes, after their replacement.
    scratch: &'a mut Vec<u8>,
    budget: &'a mut Budget,
}

/// The place of a string's bytes.
#[derive(Clone, Copy)]
enum Place {
    Text { start: usize, end: usize },
    Scratch,
}

impl<'a> Reader<'a> {
    /// Adds one row to `column`. After an error, the parts of the column may have different numbers of rows.
    pub fn read(
        value: &'a [u8],
        scratch: &'a mut Vec<u8>,
        node: &Node,
        column: &mut Column,
        budget: &'a mut Budget,
    ) -> Result<(), Fault> {
        if !value.is_ascii() && std::str::from_utf8(value).is_err() {
            return Err(NOT_UTF8.into());
        }
        let mut reader = Self { text: value, at: 0, scratch, budget };
        reader.value(node, column)?;
        match reader.token() {
            Ok(_) => Err(TRAILING.into()),
            Err(_) => Ok(()),
        }
    }

    /// Returns the next byte that is no white space, without taking it.
    #[inline(always)]
    fn token(&mut self) -> Result<u8, Fault> {
        while let Some(&byte) = self.text.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Ok(byte);
            }
            self.at += 1;
        }
        Err(NOT_JSON.into())
    }

    #[inline(always)]
    fn take(&mut self, byte: u8) -> Result<(), Fault> {
        if self.token()? != byte {
            return Err(NOT_JSON.into());
        }
        self.at += 1;
        Ok(())
    }

    /// Takes the opening bracket of an array or object. Returns whether the closing bracket followed, and takes it too.
    #[inline(always)]
    fn open(&mut self, open: u8, close: u8, problem: &'static str) -> Result<bool, Fault> {
        if self.token()? != open {
            return Err(problem.into());
        }
        self.at += 1;
        let empty = self.token()? == close;
        self.at += usize::from(empty);
        Ok(empty)
    }

    /// Takes a comma, or the end of an array or object; returns whether another item follows.
    #[inline(always)]
    fn more(&mut self, close: u8) -> Result<bool, Fault> {
        let byte = self.token()?;
        if byte != b',' && byte != close {
            return Err(NOT_JSON.into());
        }
        self.at += 1;
        Ok(byte == b',')
    }

    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Fault> {
        if !self.rest().starts_with(word) {
            return Err(NOT_JSON.into());
        }
        self.at += word.len();
        Ok(())
    }

    fn value(&mut self, node: &Node, column: &mut Column) -> Result<(), Fault> {
        let first = self.token()?;
        if first == b'n' {
            self.word(b"null")?;
            column.push_null();
            return Ok(());
        }
        match (node, column.row()) {
            (Node::Struct(fields), Data::Struct(columns)) => {
                let (rows, parts) = columns.open();
                self.object(fields, rows, parts)?;
                columns.close();
            }
            (Node::Text, Data::Bytes(bytes)) => {
                if first == b'"' {
                    let place = self.string()?;
                    self.push(place, bytes)?;
                } else {
                    let start = self.at;
                    self.skip(0)?;
                    self.push(Place::Text { start, end: self.at }, bytes)?;
                }
            }
            (Node::Long, Data::Long(values)) => values.push(self.integer()?),
            (Node::Int, Data::Int(values)) => {
                values.push(i32::try_from(self.integer()?).map_err(|_| "the number is too large for an int")?);
            }
            (Node::Double, Data::Double(values)) => values.push(self.float(first)?),
            (Node::Float, Data::Float(values)) => values.push(self.float(first)?),
            (Node::Boolean, Data::Boolean(values)) => match first {
                b't' => {
                    self.word(b"true")?;
                    values.append(true);
                }
                b'f' => {
                    self.word(b"false")?;
                    values.append(false);
                }
                _ => return Err("not a boolean".into()),
            },
            (Node::Timestamp { utc: true }, Data::Long(values)) if first != b'"' => {
                let micros = self.integer()?.checked_mul(1_000_000);
                values.push(micros.ok_or("the timestamp is too large for microseconds")?);
            }
            (&Node::Timestamp { utc }, Data::Long(values)) => {
                let (micros, offset) = scalars::timestamp(self.text()?).ok_or("the string is not a timestamp")?;
                values.push(match (utc, offset) {
                    (true, Some(offset)) => micros - offset * 1_000_000,
                    (false, None) => micros,
                    (true, None) => return Err(NO_ZONE.into()),
                    (false, Some(_)) => return Err("the local timestamp has an offset from UTC".into()),
                });
            }
            (Node::Date, Data::Int(values)) => {
                values.push(scalars::date(self.text()?).ok_or("the string is not a date")?);
            }
            (&Node::Decimal { scale }, Data::Decimal { limit, values }) => {
                let text = if first == b'"' { self.text()? } else { self.number()?.0 };
                let value = scalars::decimal(text, scale, *limit);
                values.push(value.ok_or("not a decimal, or it has more digits than its precision")?);
            }
            (Node::Binary, Data::Bytes(bytes)) => {
                let mut out = vec![];
                scalars::base64(self.text()?, &mut out).ok_or("the string is not Base64")?;
                self.budget.take_text(out.len())?;
                bytes.push(&mut out.as_slice(), out.len(), false)?;
            }
            (Node::List(items), Data::List { ends, item }) => {
                self.array(items, item)?;
                end(ends, item.rows())?;
            }
            (Node::Map(items), Data::Map { ends, entries, replaced }) => {
                let [keys, values] = entries.as_mut();
                let start = keys.rows();
                self.map(items, keys, values)?;
                end(ends, keys.rows())?;
                keys.replaced_since(start, replaced);
            }
            _ => return Err(MISMATCH.into()),
        }
        Ok(())
    }

    fn object(&mut self, fields: &Fields, rows: usize, parts: &mut [Column]) -> Result<(), Fault> {
        let (mut next, mut more) = (0, !self.open(b'{', b'}', "not an object")?);
        while more {
            self.token()?;
            // Writers keep the order of the fields, so the next field of the plan is often the field that was read.
            let found = match fields.key_at(next, self.rest()) {
                Some(len) => {
                    self.at += len;
                    Some(next)
                }
                None => {
                    let key = self.key()?;
                    fields.find(self.bytes(key))
                }
            };
            self.take(b':')?;
            match found.and_then(|i| Some((i, fields.fields.get(i)?, parts.get_mut(i)?))) {
                Some((i, Named { name, node, bits, .. }, part)) => {
                    // A repeated field replaces the earlier one.
                    if part.rows() > rows {
                        self.budget.take(*bits)?;
                        part.truncate(rows);
                    }
                    self.value(node, part).map_err(|fault| fault.within(name))?;
                    next = i + 1;
                }
                None => self.skip(0)?,
            }
            more = self.more(b'}')?;
        }
        for part in parts {
            if part.rows() == rows {
                part.push_null();
            }
        }
        Ok(())
    }

    fn array(&mut self, items: &Items, item: &mut Column) -> Result<(), Fault> {
        let mut more = !self.open(b'[', b']', "not an array")?;
        while more {
            self.budget.take(items.bits)?;
            self.value(&items.node, item).map_err(|fault| fault.within(&ITEM))?;
            more = self.more(b']')?;
        }
        Ok(())
    }

    fn map(&mut self, items: &Items, keys: &mut Column, values: &mut Column) -> Result<(), Fault> {
        let Data::Bytes(keys) = keys.row() else { return Err(MISMATCH.into()) };
        let mut more = !self.open(b'{', b'}', "not an object")?;
        while more {
            self.budget.take(items.bits)?;
            let key = self.key()?;
            self.push(key, keys)?;
            self.take(b':')?;
            self.value(&items.node, values).map_err(|fault| fault.within(&ENTRY))?;
            more = self.more(b'}')?;
        }
        Ok(())
    }

    /// Takes a value that has no column.
    fn skip(&mut self, depth: usize) -> Result<(), Fault> {
        if depth >= MAX_DEPTH {
            return Err(TOO_DEEP.into());
        }
        match self.token()? {
            b'{' => {
                let mut more = !self.open(b'{', b'}', NOT_JSON)?;
                while more {
                    self.key()?;
                    self.take(b':')?;
                    self.skip(depth + 1)?;
                    more = self.more(b'}')?;
                }
                Ok(())
            }
            b'[' => {
                let mut more = !self.open(b'[', b']', NOT_JSON)?;
                while more {
                    self.skip(depth + 1)?;
                    more = self.more(b']')?;
                }
                Ok(())
            }
            b'"' => self.string().map(drop),
            b'n' => self.word(b"null"),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            _ if self.not_finite().is_some() => Ok(()),
            _ => self.number().map(drop),
        }
    }

    fn key(&mut self) -> Result<Place, Fault> {
        if self.token()? != b'"' {
            return Err(NOT_JSON.into());
        }
        self.string()
    }

    /// Takes a value that must be a string.
    fn text(&mut self) -> Result<&[u8], Fault> {
        if self.token()? != b'"' {
            return Err(NO_STRING.into());
        }
        let place = self.string()?;
        Ok(self.bytes(place))
    }

    fn bytes(&self, place: Place) -> &[u8] {
        match place {
            Place::Text { start, end } => self.text.get(start..end).unwrap_or_default(),
            Place::Scratch => self.scratch,
        }
    }

    #[inline(always)]
    fn push(&mut self, place: Place, bytes: &mut Bytes) -> Result<(), Fault> {
        self.budget.take_text(self.bytes(place).len())?;
        match place {
            // The copy is faster if the source continues after the text.
            Place::Text { start, end } => {
                bytes.push(&mut self.text.get(start..).unwrap_or_default(), end - start, false)?
            }
            Place::Scratch => bytes.push(&mut self.scratch.as_slice(), self.scratch.len(), false)?,
        }
        Ok(())
    }

    /// Takes a string, whose quotation mark is next.
    #[inline(always)]
    fn string(&mut self) -> Result<Place, Fault> {
        self.at += 1;
        let start = self.at;
        match self.special()? {
            b'"' => {
                self.at += 1;
                Ok(Place::Text { start, end: self.at - 1 })
            }
            _ => self.escaped(start),
        }
    }

    /// Goes to the next quotation mark, backslash or control character.
    #[inline(always)]
    fn special(&mut self) -> Result<u8, Fault> {
        while let Some(&word) = self.rest().first_chunk() {
            let found = special_bytes(u64::from_le_bytes(word));
            if found != 0 {
                self.at += found.trailing_zeros() as usize / 8;
                return self.text.get(self.at).copied().ok_or_else(|| NOT_JSON.into());
            }
            self.at += 8;
        }
        let rest = self.rest();
        let len = rest.iter().position(|&byte| byte == b'"' || byte == b'\\' || byte < 0x20);
        self.at += len.unwrap_or(rest.len());
        self.text.get(self.at).copied().ok_or_else(|| NOT_JSON.into())
    }

    fn escaped(&mut self, mut start: usize) -> Result<Place, Fault> {
        self.scratch.clear();
        loop {
            let special = self.special()?;
            self.scratch.extend_from_slice(self.text.get(start..self.at).unwrap_or_default());
            self.at += 1;
            match special {
                b'"' => return Ok(Place::Scratch),
                b'\\' => self.escape()?,
                _ => return Err("a string has a control character".into()),
            }
            start = self.at;
        }
    }

    fn escape(&mut self) -> Result<(), Fault> {
        let kind = self.text.get(self.at).copied().ok_or(NOT_JSON)?;
        self.at += 1;
        self.scratch.push(match kind {
            b'"' | b'\\' | b'/' => kind,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut unit = self.unit()?;
                if (0xd800..0xdc00).contains(&unit) && self.rest().starts_with(b"\\u") {
                    self.at += 2;
                    let low = self.unit()?;
                    // Codes other than a pair of surrogates are refused below.
                    if (0xdc00..0xe000).contains(&low) {
                        unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                    }
                }
                let symbol = char::from_u32(unit).ok_or("a string has half of a surrogate pair")?;
                self.scratch.extend_from_slice(symbol.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(NOT_JSON.into()),
        });
        Ok(())
    }

    fn unit(&mut self) -> Result<u32, Fault> {
        let digits = self.rest().first_chunk::<4>().ok_or(NOT_JSON)?;
        self.at += 4;
        let mut unit = 0;
        for &byte in digits {
            unit = unit << 4 | char::from(byte).to_digit(16).ok_or(NOT_JSON)?;
        }
        Ok(unit)
    }

    fn digits(&mut self) -> usize {
        let count = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        count
    }

    /// Takes a number; returns its text, and whether it is written as an integer.
    #[inline(always)]
    fn number(&mut self) -> Result<(&'a [u8], bool), Fault> {
        let start = self.at;
        self.at += usize::from(self.rest().first() == Some(&b'-'));
        let first = self.rest().first();
        match (self.digits(), first) {
            (0, _) => return Err(NO_NUMBER.into()),
            (2.., Some(b'0')) => return Err(NOT_JSON.into()),
            _ => {}
        }
        let mut integer = true;
        if self.rest().first() == Some(&b'.') {
            integer = false;
            self.at += 1;
            if self.digits() == 0 {
                return Err(NOT_JSON.into());
            }
        }
        if let Some(b'e' | b'E') = self.rest().first() {
            integer = false;
            self.at += 1;
            self.at += usize::from(matches!(self.rest().first(), Some(b'+' | b'-')));
            if self.digits() == 0 {
                return Err(NOT_JSON.into());
            }
        }
        Ok((self.text.get(start..self.at).unwrap_or_default(), integer))
    }

    /// Takes a number without a fraction, which may be written as 1.0 or 1e3.
    #[inline(always)]
    fn integer(&mut self) -> Result<i64, Fault> {
        let (text, plain) = self.number()?;
        if !plain {
            return Ok(scalars::integer(text)?);
        }
        let (negative, digits) = match text.split_first() {
            Some((b'-', rest)) => (true, rest),
            _ => (false, text),
        };
        // Digits are subtracted from zero, because the smallest number has no positive counterpart.
        let value = digits.iter().try_fold(0i64, |value, &byte| {
            value.checked_mul(10).and_then(|value| value.checked_sub(i64::from(byte - b'0')))
        });
        let value = if negative { value } else { value.and_then(i64::checked_neg) };
        value.ok_or_else(|| scalars::TOO_LARGE.into())
    }

    fn float<T: std::str::FromStr>(&mut self, first: u8) -> Result<T, Fault> {
        let quoted = first == b'"';
        self.at += usize::from(quoted);
        let text = match self.not_finite() {
            Some(word) => word,
            None if quoted => return Err(NO_NUMBER.into()),
            None => self.number()?.0,
        };
        if quoted {
            self.word(b"\"").map_err(|_| NO_NUMBER)?;
        }
        let value = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        value.ok_or_else(|| NO_NUMBER.into())
    }

    /// Takes a number that JSON lacks but some writers write, such as NaN; returns a text that Rust can parse.
    fn not_finite(&mut self) -> Option<&'static [u8]> {
        const WORDS: [&[u8]; 6] = [b"NaN", b"Infinity", b"-Infinity", b"+Infinity", b"-INF", b"+INF"];
        let rest = self.rest();
        let word = WORDS.into_iter().find(|word| rest.starts_with(word))?;
        self.at += word.len();
        Some(word)
    }
}

/// Returns a word whose lowest set bit is in the first quotation mark, backslash or control character.
#[inline(always)]
fn special_bytes(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // Bytes below `least` have their highest bit set. Bytes after such a byte may have this bit set too.
    let below = |word: u64, least: u64| word.wrapping_sub(EACH * least) & !word & (EACH << 7);
    let equal = |byte: u8| below(word ^ (EACH * u64::from(byte)), 1);
    equal(b'"') | equal(b'\\') | below(word, 0x20)
}
