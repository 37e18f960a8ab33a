//! Tries the seeds of each fuzz target, and random changes of them, without the coverage that
//! guides `scripts/fuzz`: no build of its own is needed, so each change is tried.
//!
//! `RISKGATE_TEST_SEED=4711` tries other changes than the usual ones, and
//! `RISKGATE_TEST_FUZZ_MS=20000` tries them for 20 seconds for each target.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

// The end-to-end tests use the rest of it.
#[allow(dead_code)]
#[path = "support/random_numbers.rs"]
mod random_numbers;
#[path = "../fuzz/src/lib.rs"]
mod targets;

use random_numbers::{RandomNumbers, first_seed, read_number};

/// How long each target tries changed seeds by default.
const DEFAULT_TIME: Duration = Duration::from_millis(500);
/// Longer inputs are cut: no promise depends on more.
const MAX_INPUT_BYTES: usize = 16 * 1024;
/// Bytes at which parsers decide.
const SPECIAL_BYTES: &[u8] = b"\0\t\n\r \"%&'(),-./0:;<=>?@AZ[\\]_az{}\x7f\x80\xc3\xff";

/// Tries all seeds of a target, then changes of them until the time is over.
fn try_target(name: &str, check_input: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let seeds = read_seeds(&folder.join("corpus").join(name));
    let words = read_dictionary(&folder.join("dict").join(format!("{name}.dict")));
    for seed in &seeds {
        try_input(name, check_input, seed);
    }
    let number = first_seed();
    let time = read_number("RISKGATE_TEST_FUZZ_MS").map_or(DEFAULT_TIME, Duration::from_millis);
    let mut random = RandomNumbers(number);
    let (begun, mut tried) = (Instant::now(), 0_u64);
    while begun.elapsed() < time {
        try_input(name, check_input, &change_seed(&mut random, &seeds, &words));
        tried += 1;
    }
    targets::remove_scratch_folders();
    println!("{name}: {} seeds, {tried} changes of them from number {number}", seeds.len());
}

/// Calls the target. If it panics, keeps the input as a file and prints the file's path.
fn try_input(name: &str, check_input: fn(&[u8]), input: &[u8]) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| check_input(input))) else { return };
    let path = failed_input_path(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, input).unwrap();
    eprintln!("{name}: the input that fails is in {}", path.display());
    resume_unwind(panic);
}

fn failed_input_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/fuzz/failed").join(name)
}

fn read_seeds(folder: &Path) -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{}: no seed", folder.display());
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// The words of a libFuzzer dictionary: one in quotes on each line, with `\xAB`, `\\` and `\"`.
/// Not every target has one.
fn read_dictionary(path: &Path) -> Vec<Vec<u8>> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let quoted = |line: &str| {
        let (start, end) = (line.find('"')?, line.rfind('"')?);
        line.get(start + 1..end).map(unescape)
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(quoted).collect()
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = match (first, after) {
            (b'\\', [b'x', high, low, ..]) => {
                let digits = std::str::from_utf8(&[*high, *low]).map(str::to_owned).unwrap();
                bytes.push(u8::from_str_radix(&digits, 16).expect("two hexadecimal digits"));
                &after[3..]
            }
            (b'\\', [escaped, ..]) => {
                bytes.push(*escaped);
                &after[1..]
            }
            _ => {
                bytes.push(*first);
                after
            }
        };
    }
    bytes
}

/// Changes one of the seeds one to eight times.
fn change_seed(random: &mut RandomNumbers, seeds: &[Vec<u8>], words: &[Vec<u8>]) -> Vec<u8> {
    let mut input = pick_text(random, seeds).to_vec();
    for _ in 0..=random.number_below(8) {
        change_once(random, &mut input, seeds, words);
    }
    input.truncate(MAX_INPUT_BYTES);
    input
}

fn pick_text<'t>(random: &mut RandomNumbers, texts: &'t [Vec<u8>]) -> &'t [u8] {
    &texts[random.number_below(texts.len())]
}

fn change_once(
    random: &mut RandomNumbers,
    input: &mut Vec<u8>,
    seeds: &[Vec<u8>],
    words: &[Vec<u8>],
) {
    let at = random.number_below(input.len() + 1);
    let end = at + random.number_below((input.len() - at).min(32) + 1);
    match random.number_below(8) {
        0 => drop(input.drain(at..end)),
        1 => drop(input.splice(at..end, input[at..end].repeat(2))),
        2 => input.insert(at, random.pick_one(SPECIAL_BYTES)),
        3 => input.insert(at, random.number_below(256) as u8),
        4 if at < input.len() => input[at] ^= 1 << random.number_below(8),
        5 if at < input.len() => input[at] = random.pick_one(SPECIAL_BYTES),
        6 if !words.is_empty() => {
            drop(input.splice(at..end, pick_text(random, words).iter().copied()))
        }
        _ => {
            let other = pick_text(random, seeds);
            let from = random.number_below(other.len() + 1);
            let length = random.number_below(other.len() - from + 1);
            input.splice(at..end, other[from..from + length].iter().copied());
        }
    }
}

#[test]
fn authorization() {
    try_target("authorization", targets::authorization::check_input);
}

#[test]
fn config() {
    try_target("config", targets::config::check_input);
}

#[test]
fn domain() {
    try_target("domain", targets::domain::check_input);
}

#[test]
fn fast_path() {
    try_target("fast_path", targets::fast_path::check_input);
}

#[test]
fn form_body() {
    try_target("form_body", targets::form_body::check_input);
}

#[test]
fn http2_request() {
    try_target("http2_request", targets::http2_request::check_input);
}

#[test]
fn key_file() {
    try_target("key_file", targets::key_file::check_input);
}

#[test]
fn origin_pattern() {
    try_target("origin_pattern", targets::origin_pattern::check_input);
}

#[test]
fn preamble() {
    try_target("preamble", targets::preamble::check_input);
}

#[test]
fn request_chunks() {
    try_target("request_chunks", targets::request_chunks::check_input);
}

#[test]
fn request_head() {
    try_target("request_head", targets::request_head::check_input);
}

#[test]
fn request_target() {
    try_target("request_target", targets::request_target::check_input);
}

#[test]
fn table_file() {
    try_target("table_file", targets::table_file::check_input);
}

#[test]
fn table_lists() {
    try_target("table_lists", targets::table_lists::check_input);
}

#[test]
fn upstream_response() {
    try_target("upstream_response", targets::upstream_response::check_input);
}

#[test]
fn every_fuzz_target_is_tested_here() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/fuzz_targets");
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    let this_file = include_str!("fuzz.rs");
    names.retain(|name| !this_file.contains(&format!("try_target(\"{name}\", targets::{name}::")));
    assert!(names.is_empty(), "fuzz targets without a test here: {names:?}");
}
