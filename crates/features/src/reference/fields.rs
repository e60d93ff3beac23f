//! The fields of an encoded protobuf message, read without decoding their content.

use prost::{
    DecodeError,
    encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field},
};

/// Calls `visit` for every length-delimited field of a message and skips the others.
pub(super) fn fields<'a>(
    mut message: &'a [u8],
    mut visit: impl FnMut(u32, &'a [u8]) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    while !message.is_empty() {
        let (tag, wire_type) = decode_key(&mut message)?;
        if wire_type != WireType::LengthDelimited {
            let mut rest: &[u8] = message;
            skip_field(wire_type, tag, &mut rest, DecodeContext::default())?;
            message = rest;
            continue;
        }
        let length = decode_varint(&mut message)?;
        let length = usize::try_from(length).ok().filter(|length| *length <= message.len());
        #[allow(deprecated)]
        let length = length.ok_or_else(|| DecodeError::new("the file is cut short"))?;
        let (content, rest) = message.split_at(length);
        visit(tag, content)?;
        message = rest;
    }
    Ok(())
}
