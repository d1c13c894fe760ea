#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entry_points::count(sim::fuzz_device::feed(bytes)));
