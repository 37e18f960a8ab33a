#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| riskgate_fuzz::table_lists::check_input(data));
