//! The attribute `#[rocinante::test]`, which runs a simulation with many seeds as an ordinary test. Use it through the crate
//! `rocinante`.
#![forbid(unsafe_code)]

mod expand;

/// Makes a test of a function that takes a simulation, adds hosts to it and runs it. It is called once for each seed, on all
/// CPUs:
///
/// ```ignore
/// #[rocinante::test(seeds = 1000, faults = "loss=1%", check)]
/// fn every_message_arrives_once(simulation: rocinante::sim::Simulation) {
///     simulation.host("server", server).host("client", client).run();
/// }
/// ```
///
/// - `seeds`: how many seeds it runs, from 0 on; 100 by default. The environment variable `ROCI_SEEDS` changes it.
/// - `faults`: the faults of all hosts, in the language of `ROCI_FAULT`.
/// - `check`: checks the programs for violations of the rules of the verbs.
///
/// If a seed fails, the message says so, and the seed is run once more with a capture. `ROCI_SEED=42 cargo test NAME` runs only
/// that seed, with a capture.
#[proc_macro_attribute]
pub fn test(
    arguments: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    let expanded = expand::expand(arguments.into(), item.into());
    expanded
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
