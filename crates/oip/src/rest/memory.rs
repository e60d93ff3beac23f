//! The memory that a request in JSON takes.

/// The memory of an object beside its texts and its data: a tensor, its name and its shape.
const OBJECT: usize = 512;
/// The memory of all parameters of the request beside their texts.
const PARAMETERS: usize = 32 << 10;

/// The memory in bytes that a request takes at most when its JSON is
/// [read](super::read_request), beside the body, which binary tensors share. It follows from the
/// numbers of objects and of elements that the JSON may have; a test holds it.
pub fn memory(json: &[u8]) -> u64 {
    let count = |wanted: u8| {
        // The inner loop has no early exit, so that the compiler vectorises it.
        let in_block =
            |block: &[u8]| block.iter().map(|byte| u8::from(*byte == wanted)).sum::<u8>();
        json.chunks(u8::MAX.into()).map(|block| usize::from(in_block(block))).sum::<usize>()
    };
    // An element has at most eight bytes. Texts are no longer than in the JSON, and a name is there
    // twice while it is read.
    let bytes = size_of::<f64>() * count(b',') + OBJECT * count(b'{') + 2 * json.len();
    (bytes + PARAMETERS) as u64
}
