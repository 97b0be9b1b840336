//! The framings by which a value names its writer schema: Confluent, Apicurio, single object, Glue (with zlib).

use std::borrow::Cow;
use std::io::Read;

use flate2::read::ZlibDecoder;

use super::budget::Budget;
use super::fault::Fault;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// A zero byte and an id of 4 bytes, as written by Confluent's serializers.
    Confluent,
    /// A zero byte and an id of 8 bytes, as written by Apicurio's serializers.
    Apicurio,
    /// Avro's single-object encoding: C3 01 and the CRC-64-AVRO fingerprint of the schema.
    SingleObject,
    /// A byte 3, a byte for the compression (0, or 5 for zlib) and a UUID of 16 bytes, as written by AWS Glue's
    /// serializers. The UUID is not looked up: the id of each writer schema is 0.
    Glue,
    /// No framing: the id of each writer schema is 0.
    None,
}

const GLUES_ZLIB: u8 = 5;

impl Framing {
    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "confluent" => Ok(Self::Confluent),
            "apicurio" => Ok(Self::Apicurio),
            "single-object" => Ok(Self::SingleObject),
            "glue" => Ok(Self::Glue),
            "none" => Ok(Self::None),
            _ => Err(format!("unknown framing {name}; there are confluent, apicurio, single-object, glue and none")),
        }
    }

    /// Returns the id of the writer schema, and the datum for [`Self::unpack`].
    #[inline(always)]
    pub fn split(self, value: &[u8]) -> Result<(u64, &[u8]), Fault> {
        match (self, value) {
            (Self::Confluent, [0, rest @ ..]) => {
                rest.split_first_chunk().map(|(id, datum)| (u64::from(u32::from_be_bytes(*id)), datum))
            }
            (Self::Apicurio, [0, rest @ ..]) => {
                rest.split_first_chunk().map(|(id, datum)| (u64::from_be_bytes(*id), datum))
            }
            (Self::SingleObject, [0xc3, 1, rest @ ..]) => {
                rest.split_first_chunk().map(|(id, datum)| (u64::from_le_bytes(*id), datum))
            }
            (Self::Glue, [3, 0 | GLUES_ZLIB, rest @ ..]) => rest.split_first_chunk::<16>().map(|(_, datum)| (0, datum)),
            (Self::None, datum) => Some((0, datum)),
            _ => None,
        }
        .ok_or_else(|| self.missing())
    }

    /// Returns the datum of a value, decompressed if it is compressed.
    #[inline(always)]
    pub fn unpack<'a>(self, value: &[u8], datum: &'a [u8], budget: &Budget) -> Result<Cow<'a, [u8]>, Fault> {
        match (self, value) {
            (Self::Glue, [_, GLUES_ZLIB, ..]) => inflate(datum, budget.left()),
            _ => Ok(Cow::Borrowed(datum)),
        }
    }

    #[cold]
    fn missing(self) -> Fault {
        Fault::new(match self {
            Self::Confluent => {
                "the value does not start with a zero byte and a schema id of 4 bytes (Confluent's framing)"
            }
            Self::Apicurio => {
                "the value does not start with a zero byte and a schema id of 8 bytes (Apicurio's framing)"
            }
            Self::SingleObject => {
                "the value does not start with C3 01 and a fingerprint (Avro's single-object encoding)"
            }
            Self::Glue => {
                "the value does not start with a byte 3, the compression and a UUID of 16 bytes (AWS Glue's framing)"
            }
            Self::None => "the value has no framing",
        })
    }
}

#[cold]
fn inflate(packed: &[u8], most: usize) -> Result<Cow<'static, [u8]>, Fault> {
    let mut datum = vec![];
    let read = ZlibDecoder::new(packed).take(most as u64 + 1).read_to_end(&mut datum);
    match read {
        Ok(len) if len <= most => Ok(Cow::Owned(datum)),
        Ok(_) => Err(Fault::new(format!(
            "the value is larger than {most} bytes without its compression (max.decoded.bytes)"
        ))),
        Err(_) => Err("the value declares zlib, but it is not valid zlib data".into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const MOST: usize = 1000;

    fn glue(compression: u8, datum: &[u8]) -> Vec<u8> {
        [&[3, compression][..], &[7; 16], datum].concat()
    }

    fn unpacked(value: &[u8]) -> Result<Vec<u8>, String> {
        let (id, datum) = Framing::Glue.split(value).map_err(|fault| fault.to_string())?;
        assert_eq!(id, 0);
        Framing::Glue.unpack(value, datum, &Budget::new(MOST)).map(Cow::into_owned).map_err(|fault| fault.to_string())
    }

    fn packed(datum: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(vec![], flate2::Compression::fast());
        encoder.write_all(datum).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn glues_values_are_read_with_and_without_compression_up_to_a_limit() {
        assert_eq!(unpacked(&glue(0, b"\x02a")), Ok(b"\x02a".to_vec()));
        assert_eq!(unpacked(&glue(5, &packed(b"\x02a"))), Ok(b"\x02a".to_vec()));
        let bomb = glue(5, &packed(&vec![0; MOST + 1]));
        assert!(unpacked(&bomb).unwrap_err().contains("larger than 1000 bytes"));
        assert!(unpacked(&glue(5, b"\x02a")).unwrap_err().contains("zlib"));
        for other in [&glue(4, b"a")[..], &glue(0, b"")[..17], b"\x00\x00", b""] {
            assert!(unpacked(other).unwrap_err().contains("Glue"), "{other:?}");
        }
    }
}
