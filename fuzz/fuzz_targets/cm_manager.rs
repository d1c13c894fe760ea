#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sim::siege::feed(bytes));
