#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| riskgate_fuzz::domain::check_input(data));
