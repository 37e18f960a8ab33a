#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| riskgate_fuzz::form_body::check_input(data));
