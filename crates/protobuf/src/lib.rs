// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Protobuf by field numbers: the few messages of NRI, CRI and Perfetto that are read and written here are not worth a
//! generator.
#![warn(missing_docs)]
use quick_protobuf::{BytesReader, Writer};
use std::collections::BTreeMap;
use std::io;

/// What a field holds.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// A varint.
    Number(u64),
    /// What has a length: text, bytes, a message.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// Text, bytes, or a message within this one.
    pub fn bytes(self) -> io::Result<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) => Err(damaged("a number where bytes belong")),
        }
    }
}

/// Any whole number; a negative one is its two's complement.
pub fn number(value: Value<'_>) -> io::Result<u64> {
    match value {
        Value::Number(number) => Ok(number),
        Value::Bytes(_) => Err(damaged("bytes where a number belongs")),
    }
}

/// UTF-8.
pub fn text(value: Value<'_>) -> io::Result<String> {
    let text = std::str::from_utf8(value.bytes()?).map_err(damaged)?;
    Ok(text.into())
}

/// The error of what cannot be read.
pub fn damaged(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not understood: {what}"))
}

/// The fields of a message, in their order; of a kind that neither has any of, nothing.
pub fn fields(bytes: &[u8]) -> impl Iterator<Item = io::Result<(u32, Value<'_>)>> {
    const VARINT: u32 = 0;
    const LENGTH: u32 = 2;
    let mut reader = BytesReader::from_bytes(bytes);
    let mut next = move || loop {
        if reader.is_eof() {
            return Ok(None);
        }
        let tag = reader.next_tag(bytes)?;
        let value = match tag & 7 {
            VARINT => Value::Number(reader.read_varint64(bytes)?),
            LENGTH => Value::Bytes(reader.read_bytes(bytes)?),
            _ => {
                reader.read_unknown(bytes, tag)?;
                continue;
            }
        };
        return Ok(Some((tag >> 3, value)));
    };
    let mut failed = false;
    std::iter::from_fn(move || {
        if failed {
            return None;
        }
        let found: quick_protobuf::Result<_> = next();
        failed = found.is_err();
        found.map_err(damaged).transpose()
    })
}

/// Puts an entry of a map of texts in.
pub fn entry(value: Value<'_>, map: &mut BTreeMap<String, String>) -> io::Result<()> {
    let (mut key, mut of_key) = (String::new(), String::new());
    for field in fields(value.bytes()?) {
        match field? {
            (1, value) => key = text(value)?,
            (2, value) => of_key = text(value)?,
            _ => {}
        }
    }
    map.insert(key, of_key);
    Ok(())
}

/// One message being built. Nested ones are built apart: their length comes first.
#[derive(Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    /// Adds a whole number; a negative one is its two's complement.
    pub fn number(&mut self, field: u32, value: u64) -> &mut Self {
        self.put(|w| w.write_with_tag(field << 3, |w| w.write_uint64(value)))
    }

    /// Adds text.
    pub fn text(&mut self, field: u32, text: &str) -> &mut Self {
        self.put(|w| w.write_with_tag(field << 3 | 2, |w| w.write_string(text)))
    }

    /// Adds a message within this one.
    pub fn message(&mut self, field: u32, message: &Message) -> &mut Self {
        self.put(|w| w.write_with_tag(field << 3 | 2, |w| w.write_bytes(&message.0)))
    }

    /// As it is sent.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn put(
        &mut self,
        write: impl FnOnce(&mut Writer<&mut Vec<u8>>) -> quick_protobuf::Result<()>,
    ) -> &mut Self {
        write(&mut Writer::new(&mut self.0)).expect("writing into memory cannot fail");
        self
    }
}
