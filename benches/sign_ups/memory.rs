//! The memory of the process after many sign-ups.

use super::model::Model;
use super::traffic::{Form, Random, START};

/// After so many sign-ups, the memory is read.
const SIZES: [usize; 3] = [1_000_000, 5_000_000, 10_000_000];

/// Prints the memory of the process after many sign-ups of as many inboxes, within 30 days: half of
/// them on free providers, the others on domains of a hundred inboxes each.
pub fn print_memory(random: &mut Random) {
    let mut model = Model::new(Vec::new());
    let before = read_resident_kib();
    println!("| inboxes | VmRSS | more than before the first |\n|---:|---:|---:|");
    println!("| 0 | {} MiB | |", before / 1024);
    let last = SIZES[SIZES.len() - 1];
    for number in 0..last {
        let email = match number % 2 {
            0 => format!("person{number}@gmail.com"),
            _ => format!("person{number}@firm-{}.com", number / 200),
        };
        let at = START + (number as i64 * 30 * 24 * 3_600) / last as i64;
        model.decide(&Form::new(at, email, random.client()));
        model.times.clear();
        if SIZES.contains(&(number + 1)) {
            let resident = read_resident_kib();
            let more = (resident - before) / 1024;
            println!("| {} | {} MiB | {more} MiB |", number + 1, resident / 1024);
        }
    }
}

fn read_resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the status of the process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse().expect("a number of KiB")
}
