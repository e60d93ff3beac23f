use super::*;

const CLIENT: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[a, b, c, kind, flags, 0, 0, 0, 1], payload].concat()
}

fn text(text: &[u8]) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()], text].concat()
}

/// The bytes of a connection after the replacement, the same in pieces of any size.
fn replaced(bytes: &[u8]) -> Vec<u8> {
    let in_pieces = |size: usize| {
        let (mut frames, mut bytes) = (Frames::default(), bytes.to_vec());
        bytes.chunks_mut(size).for_each(|piece| frames.replace(piece));
        bytes
    };
    let whole = in_pieces(bytes.len());
    for size in 1..bytes.len() {
        assert_eq!(in_pieces(size), whole, "in pieces of {size} bytes");
    }
    whole
}

/// Header blocks with this authority: in each form of a literal, between other fields with percent
/// signs.
fn blocks(authority: &[u8]) -> Vec<Vec<u8>> {
    let named = [&[0x40][..], &text(b":authority")].concat();
    let names: [&[u8]; 5] = [
        &named,
        &[0x41],
        &[0x01],
        &[0x11],
        &[0x00, 10, b':', b'a', b'u', b't', b'h', b'o', b'r', b'i', b't', b'y'],
    ];
    let around = |name: &[u8]| {
        let long = [&[0x04, 0x7f, 3][..], &[b'%'; 130]].concat();
        let other = [&[0x40][..], &text(b":authorit"), &text(b"%")].concat();
        let longer = [&[0x40][..], &text(b":authority2"), &text(b"%")].concat();
        [
            &[0x83, 0x3f, 0xe1, 0x1f][..],
            &long,
            &other,
            &longer,
            name,
            &text(authority),
            &[0xff, 0x00],
            &[0x00, 0],
            &text(b"%"),
        ]
        .concat()
    };
    names.into_iter().map(around).collect()
}

#[test]
fn only_percent_signs_of_authorities_are_replaced() {
    let sent = blocks(b"run%2Fengine%25.sock");
    for (sent, expected) in sent.iter().zip(blocks(b"run-2Fengine-25.sock")) {
        let connection = |block: &[u8]| {
            [CLIENT, &frame(4, 0, b"%%%%%%"), &frame(HEADERS, 4, block), &frame(0, 1, b"%")]
                .concat()
        };
        assert_eq!(replaced(&connection(sent)), connection(&expected));
    }
}

#[test]
fn a_block_may_be_padded_and_split_over_frames() {
    let (sent, expected) = (&blocks(b"a%b")[0], &blocks(b"a-b")[0]);
    let connection = |block: &[u8]| {
        let (head, tail) = block.split_at(block.len() / 2);
        let padded = [&[3, b'%', b'%', b'%', b'%', b'%'][..], head, b"%%%"].concat();
        let first = frame(HEADERS, PADDED | PRIORITY, &padded);
        [CLIENT, &first, &frame(CONTINUATION, 0, b""), &frame(CONTINUATION, 4, tail)].concat()
    };
    assert_eq!(replaced(&connection(sent)), connection(expected));
}

#[test]
fn an_encoded_text_and_a_plain_host_stay_as_they_are() {
    let huffman = [&[0x41, 0x83][..], b"%%%"].concat();
    let plain = [&[0x41][..], &text(b"localhost:8500")].concat();
    let connection = [CLIENT, &frame(HEADERS, 4, &huffman), &frame(HEADERS, 4, &plain)].concat();
    assert_eq!(replaced(&connection), connection);
}
