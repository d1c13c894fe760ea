#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sim::hostile_host::feed(bytes));
