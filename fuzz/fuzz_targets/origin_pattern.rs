#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| riskgate_fuzz::origin_pattern::check_input(data));
