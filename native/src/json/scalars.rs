//! Parses the texts of JSON numbers, dates and times; `reader` decides whether a type takes them.

use crate::varint::Parsed;

/// Removes a number of exactly `len` digits from the start of a text.
fn digits(text: &mut &[u8], len: usize) -> Option<i64> {
    let (head, rest) = text.split_at_checked(len)?;
    let value = head.iter().try_fold(0i64, |value, &byte| digit(byte).map(|digit| value * 10 + i64::from(digit)))?;
    *text = rest;
    Some(value)
}

fn digit(byte: u8) -> Option<u8> {
    byte.is_ascii_digit().then(|| byte - b'0')
}

fn skip(text: &mut &[u8], byte: u8) -> Option<()> {
    *text = text.strip_prefix(&[byte])?;
    Some(())
}

/// Removes a date, `2026-11-26`, from the start of a text, and returns the days since 1970.
fn days(text: &mut &[u8]) -> Option<i32> {
    let year = digits(text, 4)?;
    skip(text, b'-')?;
    let month = digits(text, 2)?;
    skip(text, b'-')?;
    let day = digits(text, 2)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=last).contains(&day) {
        return None;
    }
    // The year begins in March, so that the leap day is its last day.
    let years = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = years * 365 + years.div_euclid(4) - years.div_euclid(100) + years.div_euclid(400) + day_of_year;
    i32::try_from(days - 719_468).ok()
}

pub fn date(mut text: &[u8]) -> Option<i32> {
    days(&mut text).filter(|_| text.is_empty())
}

/// Returns the microseconds since 1970 of `2026-11-26T10:20:30.123456`, and the offset from UTC in seconds, if given.
pub fn timestamp(mut text: &[u8]) -> Option<(i64, Option<i64>)> {
    let text = &mut text;
    let mut micros = i64::from(days(text)?) * 86_400_000_000;
    if text.is_empty() {
        return Some((micros, None));
    }
    skip(text, b'T').or_else(|| skip(text, b't')).or_else(|| skip(text, b' '))?;
    let hour = digits(text, 2)?;
    skip(text, b':')?;
    let minute = digits(text, 2)?;
    let second = match skip(text, b':') {
        Some(()) => digits(text, 2)?,
        None => 0,
    };
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    micros += (hour * 3600 + minute * 60 + second) * 1_000_000;
    if skip(text, b'.').is_some() {
        let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (fraction, rest) = text.split_at_checked(count)?;
        if !(1..=9).contains(&count) {
            return None;
        }
        // As in Spark, nanoseconds are cut off.
        micros += (0..6).fold(0, |value, i| value * 10 + fraction.get(i).map_or(0, |byte| i64::from(byte - b'0')));
        *text = rest;
    }
    let sign = match text.split_first() {
        None => return Some((micros, None)),
        Some((b'Z' | b'z', [])) => return Some((micros, Some(0))),
        Some((b'+', rest)) => {
            *text = rest;
            1
        }
        Some((b'-', rest)) => {
            *text = rest;
            -1
        }
        Some(_) => return None,
    };
    let hours = digits(text, 2)?;
    let minutes = match (skip(text, b':'), text.is_empty()) {
        (None, true) => 0,
        _ => digits(text, 2)?,
    };
    let known = text.is_empty() && minutes < 60 && hours * 60 + minutes <= 18 * 60;
    known.then_some((micros, Some(sign * (hours * 3600 + minutes * 60))))
}

pub const TOO_LARGE: &str = "the number is too large for a bigint";

/// Returns the integer that a text with a point or an exponent stands for.
#[cold]
pub fn integer(text: &[u8]) -> Parsed<i64> {
    const FRACTION: &str = "the number is not an integer";
    let mantissa = text.split(|byte| matches!(byte, b'e' | b'E')).next().unwrap_or_default();
    let exponent = std::str::from_utf8(text.get(mantissa.len() + 1..).unwrap_or(b"0")).unwrap_or_default();
    let after_point = mantissa.iter().rev().position(|&byte| byte == b'.').unwrap_or(0);
    let digits: Vec<u8> =
        mantissa.iter().copied().filter(u8::is_ascii_digit).skip_while(|&byte| byte == b'0').collect();
    let significant = digits.len() - digits.iter().rev().take_while(|&&byte| byte == b'0').count();
    if significant == 0 {
        return Ok(0);
    }
    // An exponent that does not fit into 64 bits exceeds all bounds, and the others must not overflow below.
    let bound = if exponent.starts_with('-') { i64::MIN } else { i64::MAX };
    let exponent = exponent.parse().unwrap_or(bound).clamp(i64::MIN / 2, i64::MAX / 2);
    let zeros = exponent - after_point as i64 + (digits.len() - significant) as i64;
    if zeros < 0 {
        return Err(FRACTION);
    }
    let digits = digits.get(..significant).filter(|digits| digits.len() < 20).ok_or(TOO_LARGE)?;
    let value = digits.iter().fold(0i128, |value, &byte| value * 10 + i128::from(byte - b'0'));
    let power = u32::try_from(zeros).ok().filter(|&zeros| zeros < 20).ok_or(TOO_LARGE)?;
    let value = value * 10i128.pow(power) * if text.starts_with(b"-") { -1 } else { 1 };
    i64::try_from(value).map_err(|_| TOO_LARGE)
}

/// Returns a number as a decimal with `scale` digits after the point, rounded half up; None: no number, or too large.
pub fn decimal(text: &[u8], scale: i8, limit: i128) -> Option<i128> {
    let (negative, text) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, text),
    };
    let at = text.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(text.len());
    let (mantissa, exponent) = text.split_at_checked(at)?;
    let exponent = match exponent.get(1..) {
        Some(exponent) => std::str::from_utf8(exponent).ok()?.parse::<i32>().ok()?,
        None => 0,
    };
    let point = mantissa.iter().position(|&byte| byte == b'.').unwrap_or(mantissa.len());
    let (whole, fraction) = mantissa.split_at_checked(point)?;
    let fraction = fraction.get(1..).unwrap_or_default();
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (all, shift) = (whole.len() + fraction.len(), i64::from(exponent) - fraction.len() as i64 + i64::from(scale));
    // Later digits are rounded away.
    let kept = all as i64 + shift.min(0);
    let (mut value, mut up) = (0i128, false);
    for (i, &byte) in whole.iter().chain(fraction).enumerate() {
        let digit = digit(byte)?;
        match (i as i64).cmp(&kept) {
            std::cmp::Ordering::Less => value = value.checked_mul(10)?.checked_add(digit.into())?,
            std::cmp::Ordering::Equal => up = digit >= 5,
            std::cmp::Ordering::Greater => {}
        }
    }
    if value != 0 && shift > 0 {
        value = value.checked_mul(10i128.checked_pow(u32::try_from(shift).ok()?)?)?;
    }
    value = value.checked_add(up.into())?;
    (value < limit).then_some(if negative { -value } else { value })
}

/// Appends the bytes of Base64 in the standard alphabet.
pub fn base64(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (groups, rest) = text.as_chunks::<4>();
    if !rest.is_empty() {
        return None;
    }
    for (i, group) in groups.iter().enumerate() {
        let padding = match group {
            [_, _, b'=', b'='] => 2,
            [_, _, _, b'='] => 1,
            _ => 0,
        };
        if padding > 0 && i + 1 < groups.len() {
            return None;
        }
        let mut bits = 0u32;
        for &byte in group.get(..4 - padding)? {
            let six = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(six);
        }
        bits <<= 6 * padding;
        out.extend_from_slice(bits.to_be_bytes().get(1..4 - padding)?);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_times_are_those_of_the_calendar() {
        assert_eq!(date(b"1970-01-01"), Some(0));
        assert_eq!(date(b"2026-11-26"), Some(20_783));
        assert_eq!((date(b"2000-02-29"), date(b"1900-02-29"), date(b"2026-11-26T")), (Some(11_016), None, None));
        assert_eq!(date(b"0001-01-01"), Some(-719_162));
        assert_eq!(timestamp(b"1970-01-01T00:00:01.5Z"), Some((1_500_000, Some(0))));
        assert_eq!(timestamp(b"1970-01-01 00:01-01:30"), Some((60_000_000, Some(-5400))));
        assert_eq!(timestamp(b"1969-12-31T23:59:59.9999999"), Some((-1, None)));
        for text in
            ["1970-01-01T24:00", "1970-01-01T", "1970-01-01T00:00:01.", "1970-01-01T00:00+19", "1970-01-01T00:00Zz"]
        {
            assert_eq!(timestamp(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn decimals_are_rounded_half_up() {
        let of = |text: &str| decimal(text.as_bytes(), 2, 100_000);
        assert_eq!(
            [of("1.005"), of("-1.005"), of("1e2"), of("0.004"), of("0.005")].map(Option::unwrap),
            [101, -101, 10_000, 0, 1]
        );
        assert_eq!([of("999.994"), of("0e99"), of("5e-3"), of("9e-4")].map(Option::unwrap), [99_999, 0, 1, 0]);
        assert_eq!([of("999.995"), of("1e3"), of("1e99"), of(""), of("."), of("1.2.3"), of("1e")], [None; 7]);
    }

    #[test]
    fn integers_may_be_written_with_a_point_or_an_exponent() {
        let of = |text: &str| integer(text.as_bytes());
        for (text, value) in [
            ("1.0", 1),
            ("-1.50e1", -15),
            ("1e3", 1000),
            ("1E+3", 1000),
            ("100e-2", 1),
            ("0.0e99999999999999999999", 0),
            ("-0.0", 0),
            ("0.001e3", 1),
            ("9223372036854775807.0", i64::MAX),
            ("-9.223372036854775808e18", i64::MIN),
        ] {
            assert_eq!(of(text), Ok(value), "{text}");
        }
        for text in ["1.5", "1e-1", "15e-1", "1e-99999999999999999999"] {
            assert_eq!(of(text), Err("the number is not an integer"), "{text}");
        }
        for text in ["9223372036854775808.0", "1e19", "1e99999999999999999999", "12345678901234567890123.0"] {
            assert_eq!(of(text), Err(TOO_LARGE), "{text}");
        }
    }

    #[test]
    fn base64_needs_its_padding() {
        let of = |text: &[u8]| {
            let mut out = vec![];
            base64(text, &mut out).map(|()| out)
        };
        assert_eq!(
            [of(b""), of(b"Zg=="), of(b"Zm8="), of(b"Zm9v")].map(Option::unwrap),
            [&b""[..], b"f", b"fo", b"foo"].map(<[u8]>::to_vec)
        );
        assert_eq!([of(b"Zg"), of(b"Zg=a"), of(b"Zg==Zg=="), of(b"Z-_v")], [const { None::<Vec<u8>> }; 4]);
    }
}
