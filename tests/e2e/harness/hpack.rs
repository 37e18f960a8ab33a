//! HPACK (RFC 7541) for a client without a dynamic table.

/// The names of the static table (appendix A), from index 1.
const STATIC_NAMES: &str = ":authority :method :method :path :path :scheme :scheme :status :status \
    :status :status :status :status :status accept-charset accept-encoding accept-language \
    accept-ranges accept access-control-allow-origin age allow authorization cache-control \
    content-disposition content-encoding content-language content-length content-location \
    content-range content-type cookie date etag expect expires from host if-match \
    if-modified-since if-none-match if-range if-unmodified-since last-modified link location \
    max-forwards proxy-authenticate proxy-authorization range referer refresh retry-after server \
    set-cookie strict-transport-security transfer-encoding user-agent vary via www-authenticate";

/// The first index of the static table that has a status, and the statuses from there.
const FIRST_STATUS_INDEX: usize = 8;
const STATIC_STATUSES: [&str; 7] = ["200", "204", "206", "304", "400", "404", "500"];

/// The bytes that Huffman coding (appendix B) writes with each number of bits, in ascending order.
/// The code is canonical, so the codes follow from these numbers. Longer codes stand for bytes that
/// no response of riskgate contains.
const HUFFMAN_BYTES: [(u32, &[u8]); 10] = [
    (5, b"012aceiost"),
    (6, b" %-./3456789=A_bdfghlmnpru"),
    (7, b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, b"&*,;XZ"),
    (10, b"!\"()?"),
    (11, b"'+|"),
    (12, b"#>"),
    (13, b"\0$@[]~"),
    (14, b"^}"),
    (15, b"<`{"),
];

/// A field in HPACK's simplest form: a literal that is never indexed, without Huffman coding.
pub fn encode_field(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0x10];
    for text in [name, value] {
        // Lengths of 127 and more continue in further bytes (section 5.1).
        let mut rest = text.len();
        if rest < 127 {
            bytes.push(rest as u8);
        } else {
            bytes.push(127);
            rest -= 127;
            while rest >= 128 {
                bytes.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            bytes.push(rest as u8);
        }
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// Decodes the names and values of a field block. Panics if the block needs a dynamic table.
pub fn decode_fields(mut block: &[u8]) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    while let Some(first) = block.first() {
        if first & 0x80 != 0 {
            let index = read_integer(&mut block, 7);
            let status =
                index.checked_sub(FIRST_STATUS_INDEX).and_then(|at| STATIC_STATUSES.get(at));
            let value = status.unwrap_or_else(|| panic!("no indexed status: {index}"));
            fields.push((static_name(index), (*value).to_owned()));
        } else if first & 0xe0 == 0x20 {
            assert_eq!(read_integer(&mut block, 5), 0, "the size of the dynamic table");
        } else {
            let prefix = if first & 0x40 != 0 { 6 } else { 4 };
            let name = match read_integer(&mut block, prefix) {
                0 => read_text(&mut block),
                index => static_name(index),
            };
            fields.push((name, read_text(&mut block)));
        }
    }
    fields
}

fn static_name(index: usize) -> String {
    STATIC_NAMES.split(' ').nth(index - 1).expect("an index of the static table").to_owned()
}

/// Reads an integer whose first byte has this many bits for it (section 5.1).
fn read_integer(block: &mut &[u8], prefix_bits: u32) -> usize {
    let mut next_byte = || {
        let (first, rest) = block.split_first().expect("a whole block");
        *block = rest;
        usize::from(*first)
    };
    let most = (1 << prefix_bits) - 1;
    let mut value = next_byte() & most;
    let mut shift = 0;
    while value >= most {
        let byte = next_byte();
        value += (byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

fn read_text(block: &mut &[u8]) -> String {
    let is_huffman = block[0] & 0x80 != 0;
    let length = read_integer(block, 7);
    let (text, rest) = block.split_at(length);
    *block = rest;
    if is_huffman { decode_huffman(text) } else { String::from_utf8_lossy(text).into_owned() }
}

fn decode_huffman(code: &[u8]) -> String {
    let mut bits =
        code.iter().flat_map(|byte| (0..8).rev().map(move |at| u32::from(byte >> at & 1)));
    let mut text = String::new();
    'bytes: loop {
        let (mut read, mut count, mut first_code) = (0, 0, 0);
        for (length, bytes) in HUFFMAN_BYTES {
            first_code <<= length - count;
            while count < length {
                // The last byte is padded with ones, and fewer than eight bits are no byte.
                let Some(bit) = bits.next() else {
                    assert!(count < 8 && read + 1 == 1 << count, "padding");
                    return text;
                };
                read = read << 1 | bit;
                count += 1;
            }
            if let Some(byte) = bytes.get((read - first_code) as usize) {
                text.push(char::from(*byte));
                continue 'bytes;
            }
            first_code += bytes.len() as u32;
        }
        panic!("a byte that no response of riskgate contains: {code:x?}");
    }
}

/// The examples of RFC 7541 appendix C.6.1, with a field size of 256 bytes replaced by 0.
#[test]
fn the_hpack_decoder_reads_the_examples_of_its_standard() {
    let text = "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad17\
                1863c78f0b97c8e9ae82ae43d3";
    let block: Vec<u8> = (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect();
    let fields = [
        (":status", "302"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("location", "https://www.example.com"),
    ];
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(decode_fields(&block), fields);
    let long = "v".repeat(1_500);
    let field = ("name".to_owned(), long.clone());
    assert_eq!(decode_fields(&encode_field("name", &long)), [field]);
}
