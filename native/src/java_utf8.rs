//! Decodes bytes to text as Java's `new String(bytes, UTF_8)` does, for the keys of headers.

use std::borrow::Cow;

/// Decodes UTF-8 and replaces invalid bytes with as many U+FFFD as Java's `String` does.
///
/// Rust and Java follow the rule of Unicode's chapter 3.9: one U+FFFD for each longest part that could begin a
/// character. Only encoded surrogates, U+D800 to U+DFFF, differ. Surrogates are not characters, so Rust regards their
/// second byte as invalid, and `ED A0 80` becomes three U+FFFD. Java decodes surrogates like characters of three bytes,
/// and replaces the whole sequence, or the part that exists, with one U+FFFD (`String.decodeUTF8_UTF16`).
pub fn decode(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(3 * bytes.len());
    let mut surrogate = Surrogate::default();
    for chunk in bytes.utf8_chunks() {
        if !chunk.valid().is_empty() {
            text.push_str(chunk.valid());
            surrogate = Surrogate::Outside;
        }
        if !chunk.invalid().is_empty() && !surrogate.goes_on(chunk.invalid()) {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    Cow::Owned(text)
}

/// How many bytes of an encoded surrogate were read: `ED`, then `A0` to `BF`, then any continuation byte.
#[derive(Clone, Copy, Default)]
enum Surrogate {
    #[default]
    Outside,
    First,
    Second,
}

impl Surrogate {
    /// Returns whether `part`, which is not UTF-8, continues the surrogate whose first bytes were read before.
    fn goes_on(&mut self, part: &[u8]) -> bool {
        let (next, goes_on) = match (*self, part) {
            (_, [0xed]) => (Self::First, false),
            (Self::First, [0xa0..=0xbf]) => (Self::Second, true),
            (Self::Second, [0x80..=0xbf]) => (Self::Outside, true),
            _ => (Self::Outside, false),
        };
        *self = next;
        goes_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_borrowed() {
        for text in ["", "key", "grün €", "\u{10ffff}\u{ffff}\u{d7ff}\u{e000}"] {
            assert!(matches!(decode(text.as_bytes()), Cow::Borrowed(same) if same == text));
        }
    }

    /// The expected texts are those of OpenJDK 17 and 25.
    #[test]
    fn what_is_no_text_is_replaced_as_java_does_it() {
        let cases: &[(&[u8], &str)] = &[
            (b"a\xffb\xc0\x80", "a?b??"),
            (b"\xe1\x80", "?"),
            (b"\xe1\x80A", "?A"),
            (b"\xf0\x90\x80", "?"),
            (b"\xe0\x80\x80", "???"),
            (b"\xf4\x90\x80\x80", "????"),
            (b"\xf5\x80\x80\x80", "????"),
            // Surrogates: complete, truncated, and followed by other bytes.
            (b"\xed\xa0\x80", "?"),
            (b"\xed\xbf\xbf", "?"),
            (b"\xed\xa0", "?"),
            (b"\xed\xa0A", "?A"),
            (b"\xed\xa0\xc2\xa9", "?©"),
            (b"\xed\xa0\xbf\x80", "??"),
            (b"\xed\xa0\x80\xed\xb0\x80", "??"),
            (b"\xed\xa0\xed\xa0\x80", "??"),
            (b"\xed\xed\xa0\x80", "??"),
            (b"A\xed\xa0\x80\xffB", "A??B"),
            // These begin with the same byte as surrogates.
            (b"\xed", "?"),
            (b"\xedA", "?A"),
            (b"\xed\x9f", "?"),
            (b"\xed\x9f\xbf", "\u{d7ff}"),
            (b"\xed\xc0\x80", "???"),
            (b"\xed\x80\xed\xa0\x80", "??"),
        ];
        for (bytes, text) in cases {
            assert_eq!(decode(bytes), text.replace('?', "\u{fffd}"), "{bytes:x?}");
        }
    }
}
