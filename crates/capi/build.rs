//! How the shared object is linked: its name, that it stays loaded, and its symbol versions.

fn main() {
    let script = format!("{}/versions.map", env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rerun-if-changed={script}");
    // Both libraries are this one file: librdmacm.so.1 is a link to libibverbs.so.1, so that the
    // loader maps one object with one set of statics.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
    // The device's thread outlives a dlclose.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={script}");
}
