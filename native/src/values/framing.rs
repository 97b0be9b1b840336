//! How a value says which schema wrote it.

use super::fault::Fault;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// A zero byte and the id of 4 bytes, as Confluent's serializers.
    Confluent,
    /// A zero byte and the id of 8 bytes, as Apicurio's.
    Apicurio,
    /// Avro's single-object encoding: C3 01 and the CRC-64-AVRO fingerprint of the schema.
    SingleObject,
    /// Nothing: all values have the writer schema 0.
    None,
}

impl Framing {
    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "confluent" => Ok(Self::Confluent),
            "apicurio" => Ok(Self::Apicurio),
            "single-object" => Ok(Self::SingleObject),
            "none" => Ok(Self::None),
            _ => Err(format!("unknown framing {name}; there are confluent, apicurio, single-object and none")),
        }
    }

    /// Returns the id of the writer schema and the datum.
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
            (Self::None, datum) => Some((0, datum)),
            _ => None,
        }
        .ok_or_else(|| self.missing())
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
            Self::None => "the value has no framing",
        })
    }
}
