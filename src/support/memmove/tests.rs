unsafe extern "C" {
    fn riskgate_memmove(destination: *mut u8, source: *const u8, n: usize) -> *mut u8;
}

/// Moves `n` bytes within a buffer, and compares all its bytes with those that are expected.
#[track_caller]
fn assert_moves(from: usize, to: usize, n: usize) {
    let len = from.max(to) + n + 64;
    let mut buffer: Vec<u8> = (0..len).map(|at| (at * 31 + at / 251) as u8).collect();
    let mut expected = buffer.clone();
    expected.copy_within(from..from + n, to);
    let start = buffer.as_mut_ptr();
    // SAFETY: both ranges lie within the buffer, which nothing else uses.
    let returned = unsafe { riskgate_memmove(start.add(to), start.add(from), n) };
    assert_eq!(returned as usize, start as usize + to);
    assert!(buffer == expected, "{n} bytes from {from} to {to}");
}

#[test]
fn bytes_are_moved_for_every_length_distance_and_alignment() {
    let short = (0..=300).chain([511, 512, 513, 1000]);
    let long = [4095, 4096, 4097, 5000, 65_536, 70_001];
    for n in short.chain(long) {
        for from in [0, 1, 7, 64] {
            for distance in [0, 1, 15, 16, 17, 63, 64, 65, 128, 500, n, n + 1] {
                assert_moves(from, from + distance, n);
                assert_moves(from + distance, from, n);
            }
        }
    }
}
