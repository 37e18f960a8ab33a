#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| riskgate_fuzz::fast_path::check_input(data));
