//! The texts that Spark's `to_json` writes for numbers, dates, times, strings and bytes.

use std::fmt::LowerExp;
use std::io::Write as _;

const MICROS_OF_DAY: i64 = 86_400_000_000;
const HEX: &[u8; 16] = b"0123456789ABCDEF";
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends a string in quotation marks, with escapes for quotation marks, `\` and control characters only.
pub fn string(mut text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let is_special = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    while let Some((plain, [special, rest @ ..])) = text.iter().position(is_special).map(|at| text.split_at(at)) {
        out.extend_from_slice(plain);
        let short = match special {
            b'"' | b'\\' => Some(*special),
            8 => Some(b'b'),
            9 => Some(b't'),
            10 => Some(b'n'),
            12 => Some(b'f'),
            13 => Some(b'r'),
            _ => None,
        };
        match short {
            Some(letter) => out.extend_from_slice(&[b'\\', letter]),
            None => {
                out.extend_from_slice(b"\\u00");
                out.extend([special >> 4, special & 15].iter().filter_map(|&half| HEX.get(usize::from(half))));
            }
        }
        text = rest;
    }
    out.extend_from_slice(text);
    out.push(b'"');
}

pub fn whole(value: i64, out: &mut Vec<u8>) {
    // Writing to memory does not fail, here and below.
    let _ = serde_json::to_writer(out, &value);
}

/// Appends a number as Java's `Double.toString` does (from JDK 19 on): the fewest digits that identify it, at least one
/// after the point, and an exponent below 10^-3 and from 10^7 on.
pub fn double(value: f64, out: &mut Vec<u8>) {
    if value == 0.0 || (1e-3..1e7).contains(&value.abs()) {
        let _ = serde_json::to_writer(out, &value);
    } else if value.is_finite() {
        scientific(value, value.abs() < f64::MIN_POSITIVE, out);
    } else {
        not_finite(value, out);
    }
}

pub fn single(value: f32, out: &mut Vec<u8>) {
    if value == 0.0 || (1e-3..1e7).contains(&value.abs()) {
        let _ = serde_json::to_writer(out, &value);
    } else if value.is_finite() {
        scientific(value, value.abs() < f32::MIN_POSITIVE, out);
    } else {
        not_finite(value.into(), out);
    }
}

/// Appends NaN or an infinity as a string, because JSON has no such numbers.
fn not_finite(value: f64, out: &mut Vec<u8>) {
    let name = if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    };
    string(name.as_bytes(), out);
}

/// Appends a number with an exponent. `tiny`: the number is subnormal, so a second digit makes the text more exact.
fn scientific(value: impl LowerExp, tiny: bool, out: &mut Vec<u8>) {
    let mut text = format!("{value:e}");
    if tiny && !text.contains('.') {
        text = format!("{value:.1e}");
    }
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    put(out, format_args!("{digits}{}E{exponent}", if digits.contains('.') { "" } else { ".0" }));
}

/// Appends a decimal as Java's `BigDecimal.toString` does.
pub fn decimal(value: i128, scale: i8, out: &mut Vec<u8>) {
    let (scale, digits) = (i32::from(scale), value.unsigned_abs().to_string());
    if value < 0 {
        out.push(b'-');
    }
    let exponent = digits.len() as i32 - 1 - scale;
    if scale >= 0 && exponent >= -6 {
        let scale = scale as usize;
        let padded = format!("{digits:0>width$}", width = scale + 1);
        let (whole, fraction) = padded.split_at_checked(padded.len() - scale).unwrap_or((&padded, ""));
        put(out, format_args!("{whole}{}{fraction}", if scale == 0 { "" } else { "." }));
        return;
    }
    let (first, rest) = digits.split_at_checked(1).unwrap_or((&digits, ""));
    put(out, format_args!("{first}{}{rest}E{exponent:+}", if rest.is_empty() { "" } else { "." }));
}

/// Appends the date of these days since 1970, in quotation marks.
pub fn date(days: i64, out: &mut Vec<u8>) {
    out.push(b'"');
    calendar(days, out);
    out.push(b'"');
}

/// Appends the time of these microseconds since 1970, in quotation marks; an instant in UTC.
///
/// Microseconds, which Spark cuts off, are written if they are not 0.
pub fn timestamp(micros: i64, utc: bool, out: &mut Vec<u8>) {
    out.push(b'"');
    calendar(micros.div_euclid(MICROS_OF_DAY), out);
    let of_day = micros.rem_euclid(MICROS_OF_DAY);
    let (seconds, fraction) = (of_day / 1_000_000, of_day % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    for (mark, value) in [(b'T', hour), (b':', minute), (b':', second)] {
        out.push(mark);
        padded(value, 2, out);
    }
    out.push(b'.');
    if fraction % 1000 == 0 {
        padded(fraction / 1000, 3, out);
    } else {
        padded(fraction, 6, out);
    }
    out.extend_from_slice(if utc { b"Z\"" } else { b"\"" });
}

/// Appends `2026-11-26`. Years after 9999 have a sign.
fn calendar(days: i64, out: &mut Vec<u8>) {
    // The year begins in March, so that the leap day is its last day; 400 years have 146,097 days.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let (month, day) = ((from_march + 2) % 12 + 1, day_of_year - (153 * from_march + 2) / 5 + 1);
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    if (0..=9999).contains(&year) {
        padded(year, 4, out);
    } else {
        put(out, format_args!("{}{:04}", if year < 0 { '-' } else { '+' }, year.unsigned_abs()));
    }
    for value in [month, day] {
        out.push(b'-');
        padded(value, 2, out);
    }
}

/// Appends a number that is not negative, with leading zeros up to `width` digits.
fn padded(value: i64, width: u32, out: &mut Vec<u8>) {
    out.extend((0..width).rev().map(|place| b'0' + (value / 10i64.pow(place) % 10) as u8));
}

/// Appends bytes in Base64 with padding, in quotation marks.
pub fn base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0u32, |bits, i| bits << 8 | u32::from(group.get(i).copied().unwrap_or(0)));
        for i in 0..4 {
            let letter = BASE64.get((bits >> (18 - 6 * i) & 63) as usize).copied();
            out.push(letter.filter(|_| i <= group.len()).unwrap_or(b'='));
        }
    }
    out.push(b'"');
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = vec![];
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn floats_are_those_of_java() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-12.5, "-12.5"),
            (123_456.75, "123456.75"),
            (9_999_999.0, "9999999.0"),
            (1e7, "1.0E7"),
            (0.001, "0.001"),
            (0.0123, "0.0123"),
            (0.00099, "9.9E-4"),
            (1e300, "1.0E300"),
            (5e-324, "4.9E-324"),
            (f64::NAN, "\"NaN\""),
            (f64::NEG_INFINITY, "\"-Infinity\""),
        ] {
            assert_eq!(written(|out| double(value, out)), text);
        }
        assert_eq!(written(|out| single(0.1, out)), "0.1");
        assert_eq!(written(|out| single(f32::from_bits(1), out)), "1.4E-45");
    }

    #[test]
    fn decimals_are_those_of_java() {
        for (value, scale, text) in [
            (0, 0, "0"),
            (0, 2, "0.00"),
            (0, 18, "0E-18"),
            (-1234, 2, "-12.34"),
            (5, 6, "0.000005"),
            (5, 7, "5E-7"),
            (-123, 10, "-1.23E-8"),
            (7, -2, "7E+2"),
        ] {
            assert_eq!(written(|out| decimal(value, scale, out)), text);
        }
    }

    #[test]
    fn dates_and_times_have_the_calendar_of_today() {
        for (days, text) in [
            (0, "1970-01-01"),
            (20_783, "2026-11-26"),
            (11_016, "2000-02-29"),
            (-719_162, "0001-01-01"),
            (-719_163, "0000-12-31"),
            (-719_529, "-0001-12-31"),
            (2_932_897, "+10000-01-01"),
        ] {
            assert_eq!(written(|out| date(days, out)), format!("\"{text}\""));
        }
        assert_eq!(written(|out| timestamp(-1, true, out)), "\"1969-12-31T23:59:59.999999Z\"");
        assert_eq!(written(|out| timestamp(1_500_000, false, out)), "\"1970-01-01T00:00:01.500\"");
    }

    #[test]
    fn strings_and_bytes_are_escaped() {
        assert_eq!(written(|out| string("a\"\\/\n\u{1f}größe".as_bytes(), out)), r#""a\"\\/\n\u001Fgröße""#);
        for (bytes, text) in
            [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"\xff\xfe\xfd", "//79")]
        {
            assert_eq!(written(|out| base64(bytes, out)), format!("\"{text}\""));
        }
    }
}
